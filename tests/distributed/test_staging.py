"""Collectives on a device that gloo cannot read: staged through the CPU, and in the report."""

from __future__ import annotations

import copy
import tempfile
import warnings
import weakref
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import torchdevice
from tests.virtual.harness import on


@on("mps")
def test_what_crosses_is_in_the_report_with_its_bytes() -> None:
    torchdevice.activate()
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=Path(folder, "store").as_uri(), rank=0, world_size=1)
        given = torch.arange(4.0, device="cuda")
        for _ in range(3):
            dist.all_reduce(given)
        dist.broadcast(given.to(torch.int64), 0)
        dist.barrier()
        dist.destroy_process_group()
    assert given.tolist() == [0, 1, 2, 3]
    assert given.device.type == "mps"
    rows = {row.operator: row for row in torchdevice.report().fallbacks}
    reduced, sent = rows["c10d::allreduce_"], rows["c10d::broadcast_"]
    assert (reduced.calls, reduced.bytes, tuple(reduced.dtypes)) == (3, 3 * 2 * 16, ("float32",))
    assert (sent.calls, sent.bytes, tuple(sent.dtypes)) == (1, 2 * 32, ("int64",))
    assert "gloo" in reduced.reason
    assert Path(reduced.site.file).name == "test_staging.py"


@on("mps")
def test_what_code_is_told_and_gets_is_what_it_is_told_and_gets_on_cuda() -> None:
    torchdevice.activate()
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=Path(folder, "store").as_uri(), rank=0, world_size=1)
        assert dist.get_backend_config() == "cpu:gloo,cuda:gloo"
        given = torch.arange(4.0, device="cuda")
        work = dist.all_reduce(given, async_op=True)
        assert work.result()[0].tolist() == [0, 1, 2, 3]
        from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

        scaler = ShardedGradScaler(device="cuda", init_scale=4.0, process_group=dist.group.WORLD)
        assert scaler.scale(given.sum()).item() == 24
        dist.destroy_process_group()


@on("cuda")
def test_a_virtual_cuda_knows_how_long_nccl_waits() -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns where it has no figure
        dist.init_process_group("nccl", init_method=Path(folder, "store").as_uri(), rank=0, world_size=1)
        given = torch.ones(2, device="cuda")
        dist.all_reduce(given)
        dist.destroy_process_group()
    assert given.tolist() == [1, 1]


@on("mps")
def test_a_group_is_dropped_after_the_reducers_that_use_it() -> None:
    """A reducer that drops the last reference waits for gloo's threads, which may wait for the interpreter's lock."""
    torchdevice.activate()
    for number in range(2):  # torch never drops the first group of a process
        group, was_there = _train_and_drop()
        assert was_there == [True, True], number
    assert group() is None


def _train_and_drop() -> tuple[weakref.ref[Any], list[bool]]:
    was_there: list[bool] = []
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("nccl", init_method=Path(folder, "store").as_uri(), rank=0, world_size=1)
        group = weakref.ref(dist.group.WORLD)
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1).to("cuda"))
        for each in (model, copy.deepcopy(model)):
            each(torch.ones(2, 4, device="cuda")).sum().backward()
            weakref.finalize(each.reducer, lambda: was_there.append(group() is not None))
        dist.destroy_process_group()
        del model, each
    return group, was_there
