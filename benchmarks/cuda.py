"""Everything that is measured on a real CUDA GPU, in one call: writes benchmarks/results/cuda.json.

    PYTHONPATH=src python benchmarks/cuda.py [OUTPUT.json [BENCHMARK …]]

Nothing is installed and nothing downloaded: torch 2.9 or newer with CUDA is enough. A benchmark's figures are written
when it is done, and those of others that the file has stay.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from torchdevice.bench.runner import Results, run

HERE = Path(__file__).resolve().parent
NAMES = ("steps", "startup", "threads", "loader")  # those that mean something on a GPU


def main() -> None:
    """One benchmark after another."""
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results" / "cuda.json"
    for name in sys.argv[2:] or NAMES:
        found = run([name])
        kept = Results.from_json(json.loads(output.read_text(encoding="utf-8"))) if output.exists() else found
        missing = {each: why for each, why in kept.missing.items() if each != name} | found.missing
        results = Results(found.machine, kept.figures | found.figures, missing)
        output.write_text(json.dumps(results.as_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        for figure in found.figures[name]:
            print(f"{figure.what}: {figure} (limit {figure.limit}) {figure.note}", flush=True)
        if name in found.missing:
            print(f"{name}: {found.missing[name]}", flush=True)


if __name__ == "__main__":
    main()
