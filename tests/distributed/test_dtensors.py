"""Random DTensors of four ranks, each of which draws in this one process: torch's backend `fake` sends nothing."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed as dist

import torchdevice
from tests.virtual.harness import on

RANKS = 4


def _drawn_by_each_rank(size: int, device: str) -> list[tuple[float, ...]]:
    """The numbers of a tensor with `size` elements per rank."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    drawn = []
    for rank in range(RANKS):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=RANKS)
        mesh = init_device_mesh(device, (RANKS,))
        sharded = DTensor.from_local(torch.ones(size, device=device), mesh, [Shard(0)])
        torch.manual_seed(8)
        drawn.append(tuple(torch.rand_like(sharded).to_local().tolist()))
        dist.destroy_process_group()
    return drawn


def _check(size: int, device: str = "cuda") -> None:
    numbers = [number for part in _drawn_by_each_rank(size, device) for number in part]
    assert len(set(numbers)) == len(numbers) == RANKS * size, numbers


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@on("cuda")
def test_shards_of_every_size_differ(size: int) -> None:
    _check(size)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@on("xpu")
def test_shards_of_every_size_differ_on_xpu(size: int) -> None:
    _check(size, "xpu")


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@on("mps")
def test_shards_of_every_size_differ_under_translation(size: int) -> None:
    warnings.simplefilter("ignore")
    torchdevice.activate()
    _check(size)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@on("")
def test_shards_of_every_size_differ_on_a_cpu(size: int) -> None:
    torchdevice.activate()
    _check(size)
