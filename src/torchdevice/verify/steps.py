"""A training step: native, under translation, and on a virtual device that the accelerator backs (`--as`).

The losses must be those of the CPU. The time of the redirected step is a ratio within one process; `as` has a process
of its own, so its time is compared with the native one by whoever reads the figures.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from torchdevice.bench.runner import interleaved
from torchdevice.bench.steps import REDIRECTED, timed, training_step, variants
from torchdevice.verify.findings import AS, PLAIN, Check, Differs, Result
from torchdevice.verify.setting import Setting, as_user_code

STEPS, ROUNDS, LAYERS = 8, 7, 2
TOLERANCE = 2e-3  # of a loss after eight steps: rounding adds up


def checks(setting: Setting) -> Iterator[Check]:
    """The losses in every way; the ratio where both sides run in one process."""
    yield Check("losses", partial(losses_agree, setting.named))
    if setting.way == PLAIN:
        yield Check("time under translation", partial(time_ratio, setting.kind))
    if setting.way in (PLAIN, AS):
        yield Check("time of a step", partial(step_time, setting.named))


def train(device: str) -> list[float]:
    """The losses of a small network on fixed data. Everything random is drawn on the CPU."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Embedding(64, 32), nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64))
    tokens = torch.randint(0, 64, (16, 24))
    network.to(device)
    batch = tokens.to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(batch).flatten(0, 1), batch.roll(1, 1).flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def losses_agree(device: str) -> Result:
    """Eight steps on the CPU and on the device."""
    expected, found = train("cpu"), as_user_code(train)(device)
    worst = max(abs(one - other) / abs(other) for one, other in zip(found, expected, strict=True))
    figures = {"cpu": expected, "device": found}
    if not worst <= TOLERANCE:
        raise Differs(f"the losses differ by up to {worst:.2%} from those of the CPU", figures)
    return Result(f"last loss {found[-1]:.4f}, differs by at most {worst:.1e} from the CPU's", figures)


def time_ratio(kind: str) -> Result:
    """A step that names another device, redirected and counted, against the same step in plain torch."""
    device = torch.device(kind)
    ways = variants(device)
    plain = training_step(device, LAYERS)
    redirected = training_step(device, LAYERS, spelled="mps" if kind == "cuda" else "cuda")
    measured = {
        "plain": timed(plain, ways["plain"], device, 2),
        REDIRECTED: timed(redirected, ways["active, portable"], device, 2),
    }
    ratio, quartiles = interleaved(measured, "plain", ROUNDS)[REDIRECTED]
    return Result(f"{ratio:.3f} times that of plain torch ({quartiles[0]:.3f}–{quartiles[1]:.3f})", {"ratio": ratio})


def step_time(device: str) -> Result:
    """Milliseconds of a step that names no device inside."""
    step = training_step(torch.device(device), LAYERS)
    wait: Callable[[], object] = torch.accelerator.synchronize
    took = []
    for _ in range(2 * ROUNDS):
        started = time.perf_counter()
        step()
        wait()
        took.append((time.perf_counter() - started) * 1e3)
    median = statistics.median(took[ROUNDS:])
    return Result(f"{median:.2f} ms", {"milliseconds": median})
