"""Everything that is measured on a real CUDA GPU, in one call: writes benchmarks/results/cuda.json.

    PYTHONPATH=src python benchmarks/cuda.py [OUTPUT.json]

Nothing is installed and nothing downloaded: torch 2.9 or newer with CUDA is enough.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from torchdevice.bench.runner import run

HERE = Path(__file__).resolve().parent


def main() -> None:
    """The benchmarks that mean something on a GPU."""
    results = run(["steps", "startup", "threads", "loader"], told=lambda name: print(name, file=sys.stderr, flush=True))
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "results" / "cuda.json"
    output.write_text(json.dumps(results.as_json(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for rows in results.figures.values():
        for figure in rows:
            print(f"{figure.what}: {figure} (limit {figure.limit}) {figure.note}")
    print(results.missing or "nothing is missing")


if __name__ == "__main__":
    main()
