"""What the checks of `program` share: their table, who this rank is, a small network, what must equal what."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

CHECKS: dict[str, Callable[[], object]] = {}
RANK, WORLD, LOCAL = (int(os.environ.get(name, 0)) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
HERE = torch.device("cuda", LOCAL)  # what it becomes depends on the machine
BATCH = 16


def check(function: Callable[[], object]) -> Callable[[], object]:
    CHECKS[function.__name__] = function
    return function


def network(seed: int = 0, batch_norm: bool = False) -> nn.Sequential:
    torch.manual_seed(seed)
    middle = [nn.BatchNorm1d(16)] if batch_norm else []
    return nn.Sequential(nn.Linear(8, 16), *middle, nn.ReLU(), nn.Linear(16, 8)).cuda()


def data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    inputs = torch.randn(BATCH, 8)
    return inputs.cuda(), inputs.flip(1).cuda()


def mine(whole: torch.Tensor) -> torch.Tensor:
    return whole.chunk(WORLD)[RANK]


def train(net: nn.Module, inputs: Any, target: Any, steps: int = 4, optimizer: Any = None) -> list[float]:
    """Losses over the whole batch, whoever has which part of it."""
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (net(inputs) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def averaged(losses: list[torch.Tensor]) -> torch.Tensor:
    total = torch.stack(losses)
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    return total


def close(found: Any, expected: Any, **tolerance: Any) -> None:
    torch.testing.assert_close(found, expected, check_device=False, **tolerance)


def same_losses(parallel: nn.Module, alone: nn.Module, optimizer: Any = None, **tolerance: Any) -> list[float]:
    inputs, target = data()
    expected = torch.stack(train(alone, inputs, target))
    found = averaged(train(parallel, mine(inputs), mine(target), optimizer=optimizer))
    close(found, expected, **tolerance)
    return found.tolist()
