"""Instructions per call of small operators, and the size of the code that a call runs through, counted by an emulator.

    python -m tools.instructions                    every way of computing
    python -m tools.instructions cpu cuda@cpu       these

The times of small operators vary from run to run by more than most changes are worth. The number of instructions varies
less. The code is given in KiB of cache lines: a call whose code does not fit into the processor's first cache takes
longer than its instructions suggest. Needs QEMU 5 to 8 for user mode (Debian: qemu-user) and a C compiler. A run takes
about three minutes per way.
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

from tools.instructions.places import OURS, blocks_of, by_library, bytes_of_code, code_of

HERE = Path(__file__).parent
SYSTEM_CALL = {"aarch64": 141, "x86_64": 140}  # getpriority
RESET, WRITE = 0x7D0000, 0x7D0001  # as in counter.c
CALLS, UNCOUNTED = 200, 5
CODE = "(code)"
ACTIVE = "mps@cpu, active"
WAYS = ("cpu", "cuda@cpu", "xpu@cpu", "mps@cpu", ACTIVE)


def cases(device: str) -> dict[str, Callable[[], object]]:
    """The small operators of `torchdevice bench virtual`, and some that have a guard under TorchDevice on mps."""
    import torch

    from torchdevice.bench import virtual

    x, index = torch.ones(4, 4, device=device), torch.zeros(4, 4, dtype=torch.int64, device=device)
    function = torch.nn.functional
    return {
        **virtual.small_cases(device),
        "linear 4x4, guarded": lambda: function.linear(x, x),
        "gather 4x4, guarded": lambda: torch.gather(x, 0, index),
        "mse_loss 4x4, guarded": lambda: function.mse_loss(x, x),
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
    """In the emulator: a JSON object of instructions per call and library, by case. The code of a call is CODE."""
    import torch

    torch.set_num_threads(1)
    call, number = ctypes.CDLL(None).syscall, SYSTEM_CALL[platform.machine()]
    found = {}
    with torch.no_grad():
        for name, case in cases(install(way)).items():
            for _ in range(UNCOUNTED):
                case()
            call(number, RESET)
            for _ in range(CALLS):
                case()
            call(number, WRITE)
            with open("/proc/self/maps", encoding="utf-8") as maps, open(output, encoding="utf-8") as counts:
                blocks = blocks_of(counts)
                libraries = by_library(blocks, code_of(maps))
            found[name] = {library: total / CALLS for library, total in libraries.items()}
            found[name][CODE] = bytes_of_code(block for block in blocks if block.times >= CALLS / 2)
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


def cell(counted: dict[str, float]) -> str:
    """What the table says of an operator."""
    code = counted.pop(CODE)
    return f"{sum(counted.values()):,.0f} ({counted.get(OURS, 0):,.0f} ours), {code / 1024:.0f} KiB"


def main(arguments: list[str]) -> None:
    """A table: a row per operator, and a column per way with instructions, those of ours, and the size of the code."""
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
        print(f"| {name} | " + " | ".join(cell(row[name]) for row in found.values()) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
