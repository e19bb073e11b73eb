"""What does an operator on a virtual device cost beyond the CPU's? Ratios in one run.

Both sides alternate, and the best of many short rounds counts: wall time on shared machines lies upwards only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch

import torchdevice.virtual

ROUNDS = 60


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


def best(function: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls * 1e6


def main() -> None:
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    torchdevice.virtual.install(device)
    torch.set_num_threads(1)
    print("| operator | CPU µs | virtual µs | added µs | ratio |\n| --- | --- | --- | --- | --- |")
    with torch.no_grad():
        for (name, cpu), virtual in zip(cases("cpu").items(), cases(device).values(), strict=True):
            calls = max(1, int(2000 / best(cpu, 20)))
            here = there = float("inf")
            for _ in range(ROUNDS):
                here, there = min(here, best(cpu, calls)), min(there, best(virtual, calls))
            print(f"| {name} | {here:.2f} | {there:.2f} | {there - here:+.2f} | {there / here:.2f} |", flush=True)


if __name__ == "__main__":
    main()
