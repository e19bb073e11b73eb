"""Instructions per call of small operators, counted by an emulator.

    python -m tools.instructions                    every way of computing
    python -m tools.instructions cpu cuda@cpu       these

The times of small operators vary from run to run by more than most changes are worth. The number of instructions varies
less. It says nothing about caches. Needs QEMU 5 to 8 for user mode (Debian: qemu-user) and a C compiler. A run takes
about two minutes per way.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.instructions.places import OURS, by_library, code_of

HERE = Path(__file__).parent
SYSTEM_CALL = {"aarch64": 141, "x86_64": 140}  # getpriority
RESET, WRITE = 0x7D0000, 0x7D0001  # as in counter.c
CALLS, UNCOUNTED = 200, 5
ACTIVE = "mps@cpu, active"
WAYS = ("cpu", "cuda@cpu", "xpu@cpu", "mps@cpu", ACTIVE)


def cases(torch: Any, device: str) -> dict[str, Callable[[], Any]]:
    """Calls of small operators. The first ones have no guard, the others have one under TorchDevice on mps."""
    x, row, out = torch.ones(4, 4, device=device), torch.ones(16, device=device), torch.empty(4, 4, device=device)
    index = torch.zeros(4, 4, dtype=torch.int64, device=device)
    function = torch.nn.functional
    return {
        "add": lambda: torch.add(x, x),
        "add out=": lambda: torch.add(x, x, out=out),
        "mul_": lambda: row.mul_(1.0),
        "relu": lambda: torch.relu(x),
        "mm": lambda: torch.mm(x, x),
        "sum": lambda: row.sum(),
        "cat": lambda: torch.cat([row, row]),
        "empty": lambda: torch.empty(4, 4, device=device),
        "view": lambda: x.view(16),
        "linear, guarded": lambda: function.linear(x, x),
        "gather, guarded": lambda: torch.gather(x, 0, index),
        "mse_loss, guarded": lambda: function.mse_loss(x, x),
    }


def install(way: str) -> str:
    """The device that the operators run on."""
    import torchdevice
    import torchdevice.virtual

    device, _, backing = way.removesuffix(", active").partition("@")
    if backing:
        torchdevice.virtual.install(device, support="real" if device == "mps" else "all", on=backing)
    if way == ACTIVE:
        torchdevice.activate(policy="portable")
    return device


def count(way: str, output: Path) -> None:
    """In the emulator: a JSON object of instructions per call and library, by case."""
    import torch

    torch.set_num_threads(1)
    call, number = ctypes.CDLL(None).syscall, SYSTEM_CALL[platform.machine()]
    found = {}
    with torch.no_grad():
        for name, case in cases(torch, install(way)).items():
            for _ in range(UNCOUNTED):
                case()
            call(number, RESET)
            for _ in range(CALLS):
                case()
            call(number, WRITE)
            with open("/proc/self/maps", encoding="utf-8") as maps, open(output, encoding="utf-8") as counts:
                libraries = by_library(counts, code_of(maps))
            found[name] = {library: total / CALLS for library, total in libraries.items()}
    print(json.dumps(found))


def emulated(way: str, folder: Path) -> dict[str, dict[str, float]]:
    """The result of `count` in a child that the emulator runs."""
    qemu = os.environ.get("QEMU") or shutil.which(f"qemu-{platform.machine()}")
    if qemu is None:
        raise SystemExit(f"qemu-{platform.machine()} is missing. Hint: install qemu-user, or set QEMU to its path.")
    plugin, output = folder / "counter.so", folder / "counts"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", str(HERE / "counter.c"), "-o", str(plugin)], check=True)
    given = f"{plugin},call={SYSTEM_CALL[platform.machine()]},output={output}"
    child = [sys.executable, "-W", "ignore", "-m", "tools.instructions", "--count", way, str(output)]
    done = subprocess.run([qemu, "-plugin", given, *child], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(arguments: list[str]) -> None:
    """One table: a row per operator, a column per way, and how many of the instructions are ours."""
    if arguments[:1] == ["--count"]:
        count(arguments[1], Path(arguments[2]))
        return
    if unknown := set(arguments) - set(WAYS):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}. Hint: {', '.join(WAYS)}")
    ways = arguments or list(WAYS)
    with tempfile.TemporaryDirectory() as folder:
        found = {way: emulated(way, Path(folder)) for way in ways}
    print("| instructions per call | " + " | ".join(ways) + " |")
    print("| --- |" + " ---: |" * len(ways))
    for name in found[ways[0]]:
        cells = [f"{sum(row[name].values()):,.0f} ({row[name].get(OURS, 0):,.0f} ours)" for row in found.values()]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
