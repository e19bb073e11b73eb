"""A launch-bound training step (8-layer GPT-like, batch 4×64), active against plain torch, interleaved in one run.

Each round times every variant once, in rotating order; a variant's ratio is taken against the plain step of the same
round, and the median over rounds is printed with the quartiles. Runs on the accelerator that is there, else the CPU.

    python benchmarks/training_step.py [--rounds 40] [--steps 10] [--layers 8]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import torchdevice

DEVICE = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
VOCABULARY, WIDTH, BATCH, LENGTH = 1000, 256, 4, 64


class Empty(TorchFunctionMode):
    """What every redirection by mode costs at least."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def default_device() -> Iterator[None]:
    """torch's own way to give factories a device."""
    torch.set_default_device(DEVICE)
    try:
        yield
    finally:
        torch.set_default_device(None)


VARIANTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "plain": contextlib.nullcontext,
    "active, accelerate": lambda: torchdevice.redirect(policy="accelerate"),
    "active, portable": lambda: torchdevice.redirect(policy="portable"),
    "empty TorchFunctionMode": Empty,
    "torch.set_default_device": default_device,
}


def training_step(layers: int) -> Callable[[], None]:
    """The step, with a factory, a move and a mask in it as scripts have them."""
    torch.manual_seed(0)
    blocks = [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, dropout=0.0) for _ in range(layers)]
    embed, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
    model = nn.ModuleList([embed, *blocks, head]).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), device=DEVICE)

    def step() -> None:
        mask = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=DEVICE), 1)
        hidden = embed(tokens.to(DEVICE))
        for block in blocks:
            hidden = block(hidden, src_mask=mask)
        loss = nn.functional.cross_entropy(head(hidden).view(-1, VOCABULARY), tokens.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def synchronize() -> None:
    """Wait for the device; the CPU never runs ahead."""
    if DEVICE.type != "cpu":
        torch.accelerator.synchronize()


def seconds(step: Callable[[], None], steps: int) -> float:
    """The mean time of one step."""
    synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    synchronize()
    return (time.perf_counter() - start) / steps


def main() -> None:
    """Print one row a variant."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--layers", type=int, default=8)
    options = parser.parse_args()
    step = training_step(options.layers)
    seconds(step, options.steps)
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    names = list(VARIANTS)
    for turn in range(options.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            with VARIANTS[name]():
                times[name].append(seconds(step, options.steps))
    print(f"torch {torch.__version__}, {DEVICE.type}, {options.rounds} rounds of {options.steps} steps")
    print("| variant | ms per step (median) | ratio to plain (median) | quartiles |")
    print("| --- | ---: | ---: | --- |")
    for name, measured in times.items():
        ratios = [one / plain for one, plain in zip(measured, times["plain"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if name != "plain" else (1.0, 1.0, 1.0)
        print(f"| {name} | {statistics.median(measured) * 1e3:.2f} | {middle:.3f} | {low:.3f}–{high:.3f} |")


if __name__ == "__main__":
    main()
