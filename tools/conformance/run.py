"""Runs every OpInfo operator on a virtual device against the CPU, over all cores, and writes docs/conformance.md.

python -m tools.conformance.run                       all configurations
python -m tools.conformance.run cuda:all:float32      one (device:support:dtype); the report keeps the others' figures
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "conformance"
DTYPES = ("float32", "int64", "bool", "float16", "bfloat16", "complex64")
CONFIGURATIONS = (
    *(f"{device}:all:{dtype}" for device in ("cuda", "mps", "xpu") for dtype in DTYPES),
    "mps:real:float32",
    "mps:real:int64",
)
SECONDS_AN_OPERATOR = 120


def list_names(dtype: str) -> list[str]:
    code = f"import torch; from tools.conformance.worker import names; print('\\n'.join(names(torch.{dtype})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


def run_shard(configuration: str, names: list[str]) -> list[dict[str, Any]]:
    device, support, dtype = configuration.split(":")
    return run_worker([sys.executable, "-m", "tools.conformance.worker", device, support, dtype], names)


def run_worker(command: list[str], names: list[str]) -> list[dict[str, Any]]:
    """One worker after another: when one dies, the operator that it was at is noted and the rest goes on."""
    left, rows = list(names), []
    while left:
        worker = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write("\n".join(left))
        worker.stdin.close()
        current = ""
        for line in worker.stdout:
            if not line.startswith("{"):
                continue
            row = json.loads(line)
            current = row["op"]
            if row["status"] != "started":
                rows.append(row)
                left.remove(current)
                current = ""
        code = worker.wait()
        if current:
            rows.append({"op": current, "status": "crashed", "error": f"exit code {code}"})
            left.remove(current)
        elif left:
            raise RuntimeError(f"{command}: the worker ended (exit code {code}) with {len(left)} operators left")
    return rows


def run(configuration: str, cores: int) -> list[dict[str, Any]]:
    names = list_names(configuration.rpartition(":")[2])
    shards = [names[i::cores] for i in range(cores)]
    with ThreadPoolExecutor(cores) as pool:
        rows = [row for shard in pool.map(lambda s: run_shard(configuration, s), shards) for row in shard]
    rows.sort(key=lambda row: str(row["op"]))
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{configuration.replace(':', '-')}.json").write_text(json.dumps(rows, indent=0))
    return rows


def main() -> None:
    from tools.conformance import report

    cores = os.cpu_count() or 1
    for configuration in sys.argv[1:] or CONFIGURATIONS:
        rows = run(configuration, cores)
        print(configuration, report.tally(rows), flush=True)
        report.write(ROOT / "docs" / "conformance.md", RESULTS)


if __name__ == "__main__":
    main()
