"""A launch-bound training step (8-layer GPT-like, batch 4×64), active relative to plain torch, eager and compiled.

Runs on the available accelerator, else on the CPU. `--virtual cuda` installs a virtual device in this process. The step
contains a factory, a move and a mask, as scripts do. Calls are recorded as in normal use.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import torchdevice
from torchdevice.bench.runner import AGAIN, Figure, Timed, emit, interleaved

VOCABULARY, WIDTH, BATCH, LENGTH = 1000, 256, 4, 64
REDIRECTED = "active, redirected and counted in every step"
LIMITS = {"cuda": 1.01, "cpu": 1.02}
Step = Callable[[], None]


class Empty(TorchFunctionMode):
    """An empty function mode: the minimal cost of every redirection by a function mode."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def variants(device: torch.device) -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """TorchDevice and the other ways to redirect devices."""
    target = device.type
    return {
        "plain": contextlib.nullcontext,
        "active, accelerate": lambda: torchdevice.redirect(target=target, policy="accelerate"),
        "active, portable": lambda: torchdevice.redirect(target=target, policy="portable"),
        "empty TorchFunctionMode": Empty,
        "torch.set_default_device": lambda: device,
        AGAIN: contextlib.nullcontext,
    }


def training_step(device: torch.device, layers: int, compiled: bool = False, spelled: str | None = None) -> Step:
    """One step of a small language model. `spelled`: the device that the code requests, if it must be redirected."""
    torch.manual_seed(0)
    blocks = [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, dropout=0.0) for _ in range(layers)]
    embed, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
    model = nn.ModuleList([embed, *blocks, head]).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), device=device)

    asked = spelled or device

    def forward(batch: torch.Tensor) -> torch.Tensor:
        mask = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=asked), 1)
        hidden = embed(batch)
        for block in blocks:
            hidden = block(hidden, src_mask=mask)
        return nn.functional.cross_entropy(head(hidden).view(-1, VOCABULARY), batch.view(-1))

    run: Callable[[torch.Tensor], torch.Tensor] = torch.compile(forward) if compiled else forward

    def step() -> None:
        loss = run(tokens.to(asked))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def timed(step: Step, entered: Callable[[], AbstractContextManager[Any]], device: torch.device, steps: int) -> Timed:
    """Seconds of `steps` steps. One step before them is not counted, because the first call at a place takes longer."""

    def wait() -> None:
        if device.type != "cpu":
            torch.accelerator.synchronize()

    def seconds() -> float:
        with entered():
            step()
            wait()
            start = time.perf_counter()
            for _ in range(steps):
                step()
            wait()
            return time.perf_counter() - start

    return seconds


def measure(device: torch.device, where: str, rounds: int, steps: int, layers: int) -> Iterator[Figure]:
    """Measures the eager step with every variant, then the compiled step with the relevant ones."""
    limit = LIMITS.get(device.type, 1.02) if where == device.type else 1.02
    for compiled in (False, True):
        step = training_step(device, layers, compiled)
        ways = variants(device)
        if compiled:
            ways = {name: ways[name] for name in ("plain", "active, accelerate", AGAIN)}
        measured = {name: timed(step, way, device, steps) for name, way in ways.items()}
        if not compiled:
            redirected = training_step(device, layers, spelled="mps" if device.type == "cuda" else "cuda")
            measured[REDIRECTED] = timed(redirected, ways["active, portable"], device, steps)
        found = interleaved(measured, "plain", rounds)
        for name, (median, spread) in found.items():
            if name != "plain":
                ours = name.startswith("active")
                how = "compiled step" if compiled else "training step"
                yield Figure(
                    f"{how} on {where}: {name}",
                    median,
                    limit=(1.01 if compiled else limit) if ours else None,
                    spread=spread,
                    note=f"{rounds} rounds of {steps} steps",
                )


def main() -> None:
    """Rows on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--virtual")
    options = parser.parse_args()
    if options.virtual:
        import torchdevice.virtual

        torchdevice.virtual.install(options.virtual)
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    where = f"virtual {device.type}" if options.virtual else device.type
    rounds = options.rounds or (10 if options.quick else 200 if device.type == "cuda" and not options.virtual else 120)
    for figure in measure(device, where, rounds, options.steps, options.layers):
        emit([figure])


if __name__ == "__main__":
    main()
