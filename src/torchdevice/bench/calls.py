"""Instructions per call, with active translation and in plain torch, counted by callgrind in one process.

Instruction counts do not depend on other work of the machine. The same calls are counted under an empty
TorchFunctionMode and under `torch.set_default_device`, the two other ways to redirect devices. Needs valgrind.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchdevice.bench.runner import Figure, emit

CALLS, TURNS = 400, 5


@dataclass(frozen=True)
class Question:
    """A call, the limit for active / plain, and the statement for plain torch if it cannot run the same call."""

    statement: str
    limit: float | None
    plain: str = ""


# `x` is a 2×2 tensor, `d` a torch.device of the target.
QUESTIONS = (
    Question("torch.zeros(2, 2, device='cpu')", 1.30),
    Question("torch.zeros(2, 2, device=d)", 1.30),
    Question("torch.zeros(2, 2)", 1.40),
    Question("torch.tensor([1.0, 2.0])", 1.40),
    Question("torch.randn(2, 2)", 1.40),
    Question("torch.zeros_like(x)", 1.40),
    Question("x.to(d)", 1.60),
    Question("x.to('cpu')", 1.60),
    Question("x.to(torch.float32)", 1.60),
    Question("x.cpu()", 2.00),
    Question("torch.device('cuda')", 2.00),
    Question("torch.device('cpu')", 2.00),
    Question("torch.add(x, x)", 1.00),
    Question("x.add(x)", 1.00),
    Question("torch.nn.functional.relu(x)", 1.00),
    Question("torch.zeros(2, 2, device='cuda')", None, "torch.zeros(2, 2, device='cpu')"),
    Question("x.to('cuda')", None, "x.to('cpu')"),
)
VARIANTS = ("plain", "mode", "default", "active")


def _entered(variant: str) -> AbstractContextManager[Any]:
    import torch

    import torchdevice
    from torchdevice.bench.steps import Empty

    return {
        "plain": contextlib.nullcontext,
        "active": lambda: torchdevice.redirect(target="cpu"),
        "mode": Empty,
        "default": lambda: torch.device("cpu"),
    }[variant]()


def _statements(variant: str) -> list[str]:
    """All statements. The first one measures the loop itself, which is subtracted."""
    return ["pass", *(q.statement if variant == "active" else q.plain or q.statement for q in QUESTIONS)]


def _run_under_valgrind(variants: list[str]) -> None:
    """Runs each statement in loops between two toggles of the collection. Writes one dump per turn, in order.

    Before each turn some memory is allocated. Without this, a call that needs one block more than its pool has makes
    Python's allocator allocate and free a pool every time, which is not part of the cost of the call.
    """
    import torch

    from torchdevice._torch import core

    gc.collect()
    gc.disable()  # a garbage collection in one loop only would change its count
    space: dict[str, Any] = {"torch": torch, "x": torch.zeros(2, 2), "d": torch.device("cpu")}
    for variant in variants:
        loops = []
        for statement in _statements(variant):
            exec(f"def loop():\n for _ in range({CALLS}):\n  {statement}\n", space)
            loops.append(space["loop"])
        with _entered(variant):
            for loop in loops:
                held: list[object] = []
                for turn in range(TURNS):
                    held.append([bytearray(size) for size in range(16, 512, 16) for _ in range(7 * turn)])
                    loop()
                    core.callgrind_toggle()
                    loop()
                    core.callgrind_dump()


def count_instructions(variants: tuple[str, ...] = VARIANTS) -> dict[str, dict[str, float]]:
    """Variant → statement → instructions per call, in the turn with the fewest instructions."""
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed; this benchmark needs it (apt install valgrind)")
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/callgrind"
        command = ["valgrind", "--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={out}"]
        child = [sys.executable, "-m", "torchdevice.bench.calls", "--counted", *variants]
        # The number of steps of a dictionary lookup depends on the hash seed.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run([*command, *child], env=environment, check=False, capture_output=True, text=True)
        if done.returncode:
            said = next((line for line in done.stderr.splitlines() if line.startswith("valgrind: ")), done.stderr)
            raise SystemExit(f"valgrind could not run Python with torch on this machine. {said}")
        dumps = sorted(glob.glob(f"{out}.*"), key=lambda name: int(name.rpartition(".")[2]))
        totals = [_total(Path(dump).read_text()) for dump in dumps]
    found = {}
    fewest = [min(totals[first : first + TURNS]) for first in range(0, len(totals), TURNS)]
    for number, variant in enumerate(variants):
        empty, *counted = fewest[number * (len(QUESTIONS) + 1) :][: len(QUESTIONS) + 1]
        found[variant] = {
            question.statement: (total - empty) / CALLS for question, total in zip(QUESTIONS, counted, strict=True)
        }
    return found


def _total(dump: str) -> int:
    found = re.search(r"^(?:totals|summary): (\d+)", dump, re.M)
    assert found is not None, "callgrind wrote a dump without a total"
    return int(found[1])


def main() -> None:
    """Rows on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the two other ways")
    parser.add_argument("--counted", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.counted:
        _run_under_valgrind(options.counted)
        return
    counts = count_instructions(("plain", "active") if options.quick else VARIANTS)
    for question in QUESTIONS:
        plain = counts["plain"][question.statement]
        others = [f"{counts[name][question.statement] / plain:.2f}" for name in ("mode", "default") if name in counts]
        note = f"plain {plain:,.0f} instructions"
        if others:
            note += f"; empty TorchFunctionMode {others[0]}, set_default_device {others[1]}"
        ratio = counts["active"][question.statement] / plain
        emit([Figure(question.statement, ratio, limit=question.limit, note=note)])


if __name__ == "__main__":
    main()
