"""The overhead of operators on a virtual device, relative to the CPU, in one run.

Both sides alternate, and the best of many short rounds counts, because other work on the machine only adds time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

import torchdevice.virtual
from torchdevice.bench.runner import Figure, emit

ADDED_US, RATIO = 1.5, 1.05


def cases(device: str) -> dict[str, Callable[[], object]]:
    small, vector = torch.randn(4, 4, device=device), torch.randn(16, device=device)
    middle, large = torch.randn(256, 256, device=device), torch.randn(1024, 1024, device=device)
    linear = torch.nn.Linear(16, 16).to(device)
    out = torch.empty_like(small)
    return {
        "add 4x4": lambda: small + small,
        "add out= 4x4": lambda: torch.add(small, small, out=out),
        "mul scalar 4x4": lambda: small * 2.0,
        "relu 4x4": lambda: small.relu(),
        "mm 4x4": lambda: small @ small,
        "sum 16": lambda: vector.sum(),
        "cat 16": lambda: torch.cat((vector, vector)),
        "view 4x4": lambda: small.view(16),
        "empty 4x4": lambda: torch.empty_like(small),
        "copy_ 4x4": lambda: out.copy_(small),
        "linear 16": lambda: linear(vector),
        "add 256x256": lambda: middle + middle,
        "mm 256x256": lambda: middle @ middle,
        "mm 1024x1024": lambda: large @ large,
    }


def is_small(name: str) -> bool:
    """Whether the case takes a few microseconds, most of them around the computation."""
    return name.endswith(("4x4", " 16"))


def small_cases(device: str) -> dict[str, Callable[[], object]]:
    """The small ones of the cases."""
    return {name: call for name, call in cases(device).items() if is_small(name)}


def _microseconds(function: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls * 1e6


def compare(name: str, cpu: Callable[[], object], virtual: Callable[[], object], rounds: int) -> Figure:
    """The added time for small operators, the ratio for large ones."""
    calls = max(1, int(2000 / _microseconds(cpu, 20)))
    here = there = float("inf")
    for _ in range(rounds):
        here, there = min(here, _microseconds(cpu, calls)), min(there, _microseconds(virtual, calls))
    note = f"{here:.2f} µs on the CPU, {there:.2f} µs virtual"
    if not is_small(name):
        return Figure(f"{name}: virtual / CPU", there / here, limit=RATIO if "1024" in name else None, note=note)
    limit = None if "linear" in name else ADDED_US  # several operators
    return Figure(f"{name}: added by the virtual device", there - here, "µs", limit, note=note)


def main() -> None:
    """Rows on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torchdevice.virtual.install(options.device)
    torch.set_num_threads(1)
    with torch.no_grad():
        for (name, cpu), virtual in zip(cases("cpu").items(), cases(options.device).values(), strict=True):
            emit([compare(name, cpu, virtual, 10 if options.quick else 60)])


if __name__ == "__main__":
    main()
