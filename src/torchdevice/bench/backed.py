"""A virtual device that the machine's accelerator computes for, against that accelerator itself.

Each side has processes of its own, which take turns: a process has one accelerator. Measured are a step that waits for
the launches of its kernels, a step that waits for the GPU, a large product, single operators, and the peak of memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import torchdevice.virtual
from torchdevice.bench import virtual
from torchdevice.bench.runner import AGAIN, Figure, emit
from torchdevice.virtual.installer import DEVICES

VOCABULARY = 512
STEPS = {  # width, layers, batch, length, steps that are timed
    "launch-bound step": (256, 8, 4, 64, 60),
    "large step": (1024, 12, 16, 512, 8),
}
LIMITS = {"launch-bound step": 1.08, "large step": 1.01, "matmul 8192x8192": 1.01, "peak memory": 1.02}
ADDED_US = 1.5
CALLS = 2000
WARM = 4  # steps that are not timed
Measured = dict[str, Any]


class Block(nn.Module):
    """Attention by the fused operator, then a feed-forward part."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both parts, each added to what came in."""
        batch, length, width = x.shape
        parts = self.project(self.norms[0](x)).split(width, 2)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.widen(self.norms[1](x))))


def time_steps(device: str, width: int, layers: int, batch: int, length: int, steps: int) -> tuple[float, int]:
    """Seconds of the fastest training step, and the peak of memory."""
    torch.manual_seed(0)
    with torch.device(device):
        embed, head = nn.Embedding(VOCABULARY, width), nn.Linear(width, VOCABULARY)
        model = nn.Sequential(embed, *(Block(width) for _ in range(layers)), head)
    torch.accelerator.reset_peak_memory_stats()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    tokens = torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(1)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(tokens).view(-1, VOCABULARY), tokens.view(-1)).backward()
        optimizer.step()

    taken = []
    for turn in range(steps + WARM):
        torch.accelerator.synchronize()
        start = time.perf_counter()
        step()
        torch.accelerator.synchronize()
        if turn >= WARM:
            taken.append(time.perf_counter() - start)
    return min(taken), torch.accelerator.max_memory_allocated()


def time_calls(function: Callable[[], object], calls: int) -> float:
    """Seconds of a call: the best of several rounds."""
    best = float("inf")
    for _ in range(5):
        torch.accelerator.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        torch.accelerator.synchronize()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def measure(device: str) -> Measured:
    """Everything, in this process, which stays on the same two CPUs as the others."""
    if sys.platform == "linux":
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    found: Measured = {}
    for name, sizes in STEPS.items():
        found[name], found["peak memory"] = time_steps(device, *sizes)
    square = torch.randn(8192, 8192, device=device)
    found["matmul 8192x8192"] = time_calls(lambda: square @ square, 5)
    with torch.no_grad():
        for name, function in virtual.cases(device).items():
            if name.endswith(("4x4", " 16")):
                found[name] = time_calls(function, CALLS)
    return found


def in_a_process(place: str) -> Measured:
    """What a process measures on `place`, which is "cuda" or "mps@cuda"."""
    command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--in", place]
    found = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    print(place, found, file=sys.stderr, flush=True)
    return dict(json.loads(found))


def compare(place: str, ours: list[Measured], plain: list[Measured]) -> list[Figure]:
    """What it costs more: a factor, or µs that are added to a small operator.

    The fastest process of each side is compared: what waits for the CPU varies by a quarter from process to process.
    The spread is that of the rounds.
    """
    figures, operators = [], virtual.cases("meta")
    for name in ours[0]:
        pairs = [(one[name], other[name]) for one, other in zip(ours, plain, strict=True)]
        fastest, least = min(one for one, _ in pairs), min(other for _, other in pairs)
        if name in operators:
            figure, rounds = (fastest - least) * 1e6, [(one - other) * 1e6 for one, other in pairs]
            several = "linear" in name  # operators
            what, unit, limit = f"{name}: added by {place}", "µs", None if several else ADDED_US
        else:
            figure, rounds = fastest / least, [one / other for one, other in pairs]
            what, unit, limit = f"{name} on {place}", "×", LIMITS[name]
        low, _, high = statistics.quantiles(rounds, n=4)
        note = f"{least / 2**20:,.0f} MiB" if name == "peak memory" else f"{least * 1e6:,.1f} µs on the real device"
        figures.append(Figure(what, figure, unit, limit if place != AGAIN else None, (low, high), note))
    return figures


def main() -> None:
    """Rows on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--in", dest="place")
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    if options.place:
        device, _, accelerator = options.place.partition("@")
        if accelerator:
            torchdevice.virtual.install(device, on=accelerator)
        print(json.dumps(measure(device)))
        return
    found = torch.accelerator.current_accelerator(check_available=True)
    if found is None or found.type not in DEVICES:
        raise SystemExit("there is no accelerator that could compute for a virtual device")
    places = [f"{device}@{found.type}" for device in DEVICES if device != found.type]
    sides: dict[str, list[Measured]] = {place: [] for place in (found.type, *places, AGAIN)}
    for _ in range(options.rounds or (2 if options.quick else 5)):
        for place, measured in sides.items():
            measured.append(in_a_process(found.type if place == AGAIN else place))
    for place in (*places, AGAIN):
        emit(compare(place, sides[place], sides[found.type]))


if __name__ == "__main__":
    main()
