"""PyTorch's own tests on a device, in many processes; then docs/upstream.md.

    python -m tools.upstream.run cuda                  all files, on a virtual device that the CPU computes for
    python -m tools.upstream.run mps@cuda test_mps     one file, on a virtual device that the accelerator computes for
    python -m tools.upstream.run real                  on the CUDA device that is there; others are compared with it

The outcome of each test lies in build/upstream/ afterwards. A test that crashes or hangs costs itself only.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.conformance.run import ROOT, run_worker
from tools.upstream import archive
from tools.upstream.page import write_page
from tools.upstream.table import REAL, Run, counted, load, real_of, reasons, save

RESULTS = ROOT / "build" / "upstream"
FILES = {
    "cuda": (
        "test_cuda",
        "test_cuda_multigpu",
        "test_torch",
        "test_reductions",
        "test_sparse",
        "test_nn",
        "test_optim",
        "test_autograd",
        "test_indexing",
        "test_view_ops",
        "test_serialization",
        "test_dataloader",
    ),
    "mps": ("test_mps",),
}
PINNED = ROOT / "constraints.txt"
AT_ONCE = 100  # tests per process: an import of PyTorch's test tools takes seconds
Row = dict[str, Any]


def kind(mode: str) -> str:
    """The type of the device that a mode is about."""
    return "cuda" if mode == REAL else mode.partition("@")[0].partition(":")[0]


def command(folder: Path, file: str, mode: str) -> list[str]:
    """A worker for one file."""
    return [sys.executable, "-m", "tools.upstream.worker", str(folder), file, mode]


def names(folder: Path, file: str, mode: str) -> list[str]:
    """The tests of a file that are about the device."""
    done = subprocess.run(
        [*command(folder, file, mode), "--list"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{file} cannot be loaded: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr, flush=True)
    return done.stdout.split()


def chunks(listed: dict[str, list[str]]) -> Iterator[tuple[str, list[str]]]:
    """Slow tests stand beside each other in a file, so each process gets every n-th."""
    for file, all_of_it in listed.items():
        parts = -(-len(all_of_it) // AT_ONCE)
        yield from ((file, all_of_it[i::parts]) for i in range(parts))


def run(mode: str, files: list[str], jobs: int) -> dict[str, list[Row]]:
    """The outcomes per file. They are written as they come."""
    folder, lock = archive.tests(), threading.Lock()
    found: dict[str, list[Row]] = collections.defaultdict(list)
    into = RESULTS / mode.replace(":", "-")
    into.mkdir(parents=True, exist_ok=True)

    def one(task: tuple[str, list[str]]) -> None:
        file, some = task
        rows = run_worker(command(folder, file, mode), some)
        with lock:
            found[file] = sorted([*found[file], *rows], key=lambda row: str(row["op"]))
            (into / f"{file}.json").write_text(json.dumps(found[file], indent=0), encoding="utf-8")

    with ThreadPoolExecutor(jobs) as pool:
        listed = dict(zip(files, pool.map(lambda file: names(folder, file, mode), files), strict=True))
        list(pool.map(one, chunks(listed)))
    return found


ARM = "aarch64"
ON_ARM = "on ARM: "  # begins a reason that holds only there
SOMEWHERE = "on some machines: "  # begins a reason that depends on what is installed, or on the speed of the machine


def surprises(file: str, ours: Run, counts: list[str]) -> list[str]:
    """Tests that count and fail without a reason, and those that pass in spite of one."""
    known = reasons().get(file, {})
    told = []
    for name in counts:
        passes, reason = ours.outcome(name) == "passed", known.get(name)
        depends = reason and (reason.startswith(SOMEWHERE) or (reason.startswith(ON_ARM) and ARM not in ours.machine))
        if passes and reason and not depends:
            told.append(f"{name} passes, and should not: {reason}")
        elif not passes and not reason:
            told.append(f"{name} {ours.outcome(name)}")
    return told


def machine(mode: str) -> tuple[str, str]:
    """The version of torch, and what computed."""
    code = "import torch; print(torch.__version__, torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    version, _, name = done.stdout.strip().partition(" ")
    return version, name if mode == REAL or "@" in mode else f"CPU, {platform.machine()}"


def name_of(mode: str, version: str) -> str:
    """What the results of a mode are kept under: those of another torch stand beside those of the pinned one."""
    return mode if mode == REAL or f"torch=={version.partition('+')[0]}" in PINNED.read_text() else f"{mode} {version}"


def main() -> int:
    """A line per file; exit status 1 if a test did what nobody expected."""
    parser = argparse.ArgumentParser(prog="tools.upstream.run", description=__doc__)
    parser.add_argument("mode")
    parser.add_argument("files", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    found = run(options.mode, options.files or list(FILES[kind(options.mode)]), options.jobs)
    version, name = machine(options.mode)
    today = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    results, told = load(), 0
    for file, rows in found.items():
        ours = Run.of(rows, torch=version, machine=name, date=today)
        results.setdefault(name_of(options.mode, version), {})[file] = ours
        print(file, {outcome: len(names) for outcome, names in ours.names.items()}, flush=True)
        counts = counted(ours, real_of(results, options.mode, file)) if options.mode != REAL else []
        for line in surprises(file, ours, counts):
            print(f"  {line}", flush=True)
            told += 1
    save(results)
    write_page(results)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
