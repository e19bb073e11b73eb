"""Operators that a virtual mps lacks: the time of their fallbacks, relative to torch's own fallback.

One process measures torch's own fallback (`PYTORCH_ENABLE_MPS_FALLBACK=1`) and TorchDevice's to `cpu` and to
`mlx,cpu`, in turns of random order and with the same tensors, because the same code differs by some percent between two
processes. The best turn counts, and the median of all processes. torch's own is measured twice: the difference is that
of the machine. The rows "by hand" have no fallback. Operators are computed on the CPU, between copies that are written
in Python. The training step runs in another process, on a virtual mps that has all kernels; to its time is added what
its gaps take by hand beyond these kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from torchdevice.bench.runner import Figure, emit, use_two_cpus

if TYPE_CHECKING:
    import torch

ADDED_US, SLOWER_WITH_MLX = 40, 1.10
OF_TORCH, OF_TORCH_WITH_COPIES, STEP_WITH_COPIES = 0.85, 0.75, 0.80
ROUNDS, TURNS, SECONDS = 4, 10, 0.05
TAKE, STEP = "take, 100 of 4096", "training step with two gaps"
NATIVE = "(native)"
TORCH, AGAIN, CPU, MLX, BY_HAND = "torch", "torch, a second time", "cpu", "mlx,cpu", "by hand"
ALL_KERNELS = "all kernels"
GAPS, NO_GAPS = "gaps", "no gaps"
COPIES = "copies in a training step"

Times = dict[str, float]
Call = Callable[..., Any]
Operators = dict[str, tuple[Call, tuple["torch.Tensor", ...]]]


def best(call: Call, seconds: float = 0.25) -> float:
    """Microseconds per call: the best of many short runs, because other work on the machine only adds time."""
    import torch

    call()
    started = time.perf_counter()
    call()
    batch = max(1, int(0.01 / max(time.perf_counter() - started, 1e-7)))
    found, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        started = time.perf_counter()
        for _ in range(batch):
            call()
        torch.accelerator.synchronize()
        found = min(found, (time.perf_counter() - started) / batch)
    return found * 1e6


def operators() -> Operators:
    """Functions with their arguments, on the CPU."""
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    x, index = torch.randn(64, 64), torch.arange(100)
    logits, targets = torch.randn(50, 8, 20).log_softmax(2), torch.randint(1, 20, (8, 10))
    lengths, sizes = [50] * 8, [10] * 8
    return {
        TAKE: (torch.take, (x, index)),
        "mode, 64×64": (torch.mode, (x,)),
        "eigh, 64×64": (torch.linalg.eigh, (x @ x.T,)),
        "_ctc_loss, 50×8×20": (
            lambda given, wanted: torch.ops.aten._ctc_loss(given, wanted, lengths, sizes),
            (logits, targets),
        ),
        "adaptive_max_pool3d": (
            lambda volume: functional.adaptive_max_pool3d(volume, 4, return_indices=True),
            (torch.randn(1, 8, 9, 9, 9),),
        ),
        f"add {NATIVE}": (torch.add, (x, x)),
        f"mm {NATIVE}": (torch.mm, (x, x)),
        f"linear, guarded {NATIVE}": (functional.linear, (x, x)),
    }


def training_step(device: str) -> Callable[[], None]:
    """Forward and backward. It lacks two operators: a pooling with its gradient, and `logspace`."""
    import torch

    x = torch.randn(64, 64).to(device)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 27)).to(device)

    def step() -> None:
        out = torch.nn.functional.adaptive_max_pool3d(net(x).reshape(1, 64, 3, 3, 3), 2)
        (out.sum() + torch.logspace(0, 1, 8, device=device).sum()).backward()

    return step


def gaps_of_step(device: str) -> Operators:
    """The operators that the training step lacks, with arguments of the same shapes, on the CPU."""
    import torch
    from torch.nn import functional

    volume = torch.randn(1, 64, 3, 3, 3)
    pooled, indices = functional.adaptive_max_pool3d(volume, 2, return_indices=True)
    return {
        "gap: pooling": (lambda given: functional.adaptive_max_pool3d(given, 2, return_indices=True), (volume,)),
        "gap: its gradient": (
            torch.ops.aten.adaptive_max_pool3d_backward,
            (torch.ones_like(pooled), volume, indices),
        ),
        "gap: logspace": (partial(torch.logspace, 0, 1, 8, device=device), ()),
    }


def by_hand(call: Call, arguments: tuple[torch.Tensor, ...], on: str) -> Callable[[], Any]:
    """The call on the CPU with few copies: none if the memory is the host's, else through pinned memory."""
    import torch

    if on == "cpu":
        return partial(call, *arguments)
    there = [each.to("mps") for each in arguments]
    here = [torch.empty_like(each, pin_memory=True) for each in arguments]

    def copied() -> Any:
        for to, each in zip(here, there, strict=True):
            to.copy_(each, non_blocking=True)
        torch.accelerator.current_stream().synchronize()
        result = call(*here)
        results = [result] if isinstance(result, torch.Tensor) else result
        return [each.to("mps", non_blocking=True) for each in results]

    return copied


def measure(gapless: bool, on: str) -> dict[str, Times]:
    """Microseconds by way and call."""
    import torch

    import torchdevice
    import torchdevice.virtual

    use_two_cpus()
    torch.set_num_threads(1)
    torchdevice.virtual.install("mps", support="all" if gapless else "real", on=on)
    calls: dict[str, Call] = {STEP: training_step("mps")}
    if gapless:
        for name, (call, arguments) in gaps_of_step("mps").items():
            calls[name] = partial(call, *(each.to("mps") for each in arguments))
        ways = {ALL_KERNELS: calls}
    else:
        for name, (call, arguments) in operators().items():
            calls[name] = partial(call, *(each.to("mps") for each in arguments))
        fallen = {name: each for name, each in operators().items() if NATIVE not in name}
        alone = {name: by_hand(*each, on) for name, each in (fallen | gaps_of_step("cpu")).items()}
        ways = dict.fromkeys((TORCH, CPU, AGAIN, MLX), calls) | {BY_HAND: alone}
    torchdevice.activate(policy="portable")  # so that no way has the only turn before the first activation
    torchdevice.deactivate()
    times: dict[str, Times] = {way: {} for way in ways}
    for _ in range(TURNS):
        for way in random.sample(list(ways), len(ways)):
            if way in (CPU, MLX):
                os.environ["TORCHDEVICE_FALLBACK"] = way
                torchdevice.activate(policy="portable")
            for name, timed in ways[way].items():
                times[way][name] = min(best(timed, SECONDS), times[way].get(name, float("inf")))
            torchdevice.virtual.reset_counts()
            calls[STEP]()
            times[way][COPIES] = torchdevice.virtual.counts().get("aten::copy_", 0)
            torchdevice.deactivate()
    return times


def in_child(who: str, on: str) -> dict[str, Times]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "torchdevice.bench.fallbacks", "--who", who, "--on", on],
        env={**os.environ, "PYTORCH_ENABLE_MPS_FALLBACK": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Times] = json.loads(done.stdout.splitlines()[-1])
    return found


def one_round(on: str) -> dict[str, Times]:
    """By way and call, from two processes."""
    times = in_child(GAPS, on) | in_child(NO_GAPS, on)
    hand, kernels = times[BY_HAND], times[ALL_KERNELS]
    hand[STEP] = kernels[STEP] + sum(hand[gap] - kernels[gap] for gap in kernels if gap not in (STEP, COPIES))
    return times


def figures(rounds: list[dict[str, Times]], on: str = "cpu") -> list[Figure]:
    """The added time, the ratio to torch's own fallback, and the ratio of `mlx,cpu` to `cpu`."""
    calls = [name for name in rounds[0][TORCH] if name != COPIES]
    fallen = [name for name in calls if NATIVE not in name]
    limits = dict.fromkeys(fallen, 1.0) if on == "cpu" else {STEP: STEP_WITH_COPIES}

    def row(what: str, values: list[float], **more: Any) -> Figure:
        return Figure.of(what if on == "cpu" else f"{what}, on mps@{on}", values, **more)

    def ratios(way: str, base: str, names: Collection[str] = fallen) -> list[float]:
        return [sum(each[way][name] for name in names) / sum(each[base][name] for name in names) for each in rounds]

    def typical(way: str, name: str) -> float:
        return statistics.median(each[way][name] for each in rounds)

    added = [each[CPU][TAKE] - each[BY_HAND][TAKE] for each in rounds]
    rows = [row("a fallback, beyond its copies and its computation", added, unit="µs", limit=ADDED_US)]
    for name in calls:
        note = f"{typical(CPU, name):.1f} µs, torch's own fallback {typical(TORCH, name):.1f} µs"
        ours = ratios(CPU, TORCH, [name])
        rows.append(row(f"{name}: ours / torch's fallback", ours, limit=limits.get(name), note=note))
    copies = f"copies in the training step: ours {typical(CPU, COPIES):.0f}, torch's {typical(TORCH, COPIES):.0f}"
    together = OF_TORCH if on == "cpu" else OF_TORCH_WITH_COPIES
    rows.append(row("all of them: ours / torch's fallback", ratios(CPU, TORCH), limit=together, note=copies))
    rows.append(row("all of them: by hand / torch's fallback", ratios(BY_HAND, TORCH)))
    rows.append(row(f"{STEP}: by hand / torch's fallback", ratios(BY_HAND, TORCH, [STEP])))
    rows.append(row(f"{STEP}: with all kernels / torch's fallback", ratios(ALL_KERNELS, TORCH, [STEP])))
    rows.append(row("all of them: torch's fallback, a second time", ratios(AGAIN, TORCH)))
    for name in fallen:
        rows.append(row(f"{name}: mlx,cpu / cpu", ratios(MLX, CPU, [name]), limit=SLOWER_WITH_MLX))
    return rows


def main() -> None:
    """Rows on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--on", default="cpu", help="the device that backs the virtual mps")
    parser.add_argument("--who", choices=(GAPS, NO_GAPS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.who:
        print(json.dumps(measure(options.who == NO_GAPS, options.on)))
        return
    emit(figures([one_round(options.on) for _ in range(1 if options.quick else ROUNDS)], options.on))


if __name__ == "__main__":
    main()
