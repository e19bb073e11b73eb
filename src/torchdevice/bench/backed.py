"""A virtual device that the accelerator of the machine backs, compared with that accelerator itself.

Each side has its own process, because a process has one accelerator. The processes share two CPUs and take turns of a
fraction of a second. Only consecutive turns are compared, because the speed of a shared machine varies. Measured are a
step that is limited by kernel launches, a step that is limited by the GPU, a large matrix product, single operators,
and the peak of memory.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.nn import functional

import torchdevice.virtual
from torchdevice.bench import virtual
from torchdevice.bench.runner import AGAIN, Figure, emit, use_two_cpus
from torchdevice.virtual.installer import DEVICES

VOCABULARY = 512
STEPS = {  # width, layers, batch, length, steps of a turn
    "launch-bound step": (256, 8, 4, 64, 12),
    "large step": (1024, 12, 16, 512, 2),
}
LIMITS = {"launch-bound step": 1.08, "large step": 1.01, "matmul 8192x8192": 1.01, "peak memory": 1.02}
ADDED_US = 1.5
CALLS = 400
TURNS = {False: 25, True: 7}  # with --quick
# A short step differs by a tenth from turn to turn on a shared machine: its median needs more turns.
TIMES_TURNS = {"launch-bound step": 8}
# A process can be slower than another one at the same short work in all of its turns. The turns of short work are those
# of several processes.
PROCESSES = dict.fromkeys(LIMITS, 1) | {"launch-bound step": 5}
FOR_OPERATORS = 3
WARM = 4  # steps that are not timed
Turn = Callable[[], float]


class Block(nn.Module):
    """Attention by the fused operator, then a feed-forward part."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both parts, each with a residual connection."""
        batch, length, width = x.shape
        parts = self.project(self.norms[0](x)).split(width, 2)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(functional.gelu(self.widen(self.norms[1](x))))


def step_of(device: str, width: int, layers: int, batch: int, length: int) -> Callable[[], None]:
    """A training step. The first steps of the model are run here and not measured."""
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

    for _ in range(WARM):
        step()
    return step


def fastest(function: Callable[[], object], times: int, calls: int = 1) -> float:
    """Seconds per call."""
    best = float("inf")
    for _ in range(times):
        torch.accelerator.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        torch.accelerator.synchronize()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def turn_of(name: str, device: str) -> Turn:
    """The function that a process calls in each turn. It returns seconds, or bytes for the peak of memory."""
    if name in STEPS:
        *sizes, steps = STEPS[name]
        step = step_of(device, *sizes)
        return lambda: fastest(step, steps)
    if name == "peak memory":
        step_of(device, *STEPS["large step"][:4])
        peak = torch.accelerator.max_memory_allocated()
        return lambda: peak
    if name == "matmul 8192x8192":
        square = torch.randn(8192, 8192, device=device)
        return lambda: fastest(lambda: square @ square, 1, 5)
    function = virtual.cases(device)[name]

    def calls() -> float:
        with torch.no_grad():
            return fastest(function, 3, CALLS)

    return calls


def serve(place: str) -> None:
    """Takes one turn per name on stdin, on "cuda" or on "mps@cuda", and prints the measured value."""
    device, _, accelerator = place.partition("@")
    if accelerator:
        torchdevice.virtual.install(device, on=accelerator)
    use_two_cpus()
    current, turn = "", None
    for line in sys.stdin:
        name = line.strip()
        if name != current:
            turn = None  # frees the memory of the previous benchmark
            current, turn = name, turn_of(name, device)
        assert turn is not None
        print(turn(), flush=True)


class Side:
    """A process that measures on one of the devices."""

    def __init__(self, place: str) -> None:
        command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--in", place]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end(self) -> None:
        """Waits until the process has ended, which frees its memory."""
        self.process.communicate()

    def turn(self, name: str) -> float:
        """Takes one turn and returns the measured value. The other processes wait."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(name, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def compare(name: str, place: str, ours: list[float], plain: list[float]) -> Figure:
    """The overhead: a ratio, or µs that are added to a small operator. The median of the turns."""
    least = min(plain)
    if name in LIMITS:
        turns = [one / other for one, other in zip(ours, plain, strict=True)]
        what, unit = f"{name} on {place}", "×"
    else:
        turns = [(one - other) * 1e6 for one, other in zip(ours, plain, strict=True)]
        what, unit = f"{name}: added by {place}", "µs"
    several = "linear" in name  # operators
    limit = None if place == AGAIN or several else LIMITS.get(name, ADDED_US)
    note = f"{least / 2**20:,.0f} MiB" if name == "peak memory" else f"{least * 1e6:,.1f} µs on the real device"
    if name in STEPS:
        note += f"; the fastest turns: {min(ours) / least:.3f}×"
    return Figure.of(what, turns, unit=unit, limit=limit, note=note)


def turns_of(name: str, quick: bool) -> int:
    """The number of turns of each process."""
    return math.ceil(TURNS[quick] * TIMES_TURNS.get(name, 1) / PROCESSES.get(name, FOR_OPERATORS))


def parts_of(names: Iterable[str]) -> list[list[str]]:
    """What new processes measure together, one list after another."""
    together: dict[int, list[str]] = {}
    for name in names:
        together.setdefault(PROCESSES.get(name, FOR_OPERATORS), []).append(name)
    return [part for processes, part in together.items() for _ in range(processes)]


def main() -> None:
    """Rows on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--in", dest="place")
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    if options.place:
        serve(options.place)
        return
    found = torch.accelerator.current_accelerator(check_available=True)
    if found is None or found.type not in DEVICES:
        raise SystemExit("this host has no accelerator that can back a virtual device")
    places = [f"{device}@{found.type}" for device in DEVICES if device != found.type]
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in (*LIMITS, *virtual.small_cases("meta"))}
    for part in parts_of(rounds):
        sides = {place: Side(found.type if place == AGAIN else place) for place in (found.type, *places, AGAIN)}
        for name in part:
            turns = options.rounds or turns_of(name, options.quick)
            rounds[name] += [{place: side.turn(name) for place, side in sides.items()} for _ in range(turns)]
        for side in sides.values():
            side.end()
    figures: dict[str, list[Figure]] = {place: [] for place in (*places, AGAIN)}
    for place, rows in figures.items():
        for name, taken in rounds.items():
            rows.append(compare(name, place, *([each[side] for each in taken] for side in (place, found.type))))
    for rows in figures.values():
        emit(rows)


if __name__ == "__main__":
    main()
