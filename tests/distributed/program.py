"""A program of many small checks for torchrun: every rank runs all of them, rank 0 writes what came out as JSON.

    torchrun --nproc-per-node 2 -m tests.distributed.program RESULTS.json [CHECK …]

It is written as code for CUDA is: `nccl`, `cuda`, `set_device(local_rank)`. What each sharded or parallel result must
be equal to is computed by the same rank alone, from the whole.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

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


# --- names ------------------------------------------------------------------------------------------------------


@check
def backends() -> object:
    assert dist.get_backend() == "nccl" == dist.Backend.NCCL
    assert dist.is_nccl_available()
    assert dist.is_backend_available("nccl")
    assert hasattr(dist.ProcessGroupNCCL.Options(), "is_high_priority_stream")
    everybody = list(range(WORLD))
    for spelled in ("NCCL", dist.Backend.NCCL, "cuda:nccl", "cpu:gloo,cuda:nccl", None):
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True) if spelled == "NCCL" else None
        group = dist.new_group(everybody, backend=spelled, pg_options=options, timeout=timedelta(seconds=60))
        ones = torch.ones(2, device=HERE)
        dist.all_reduce(ones, group=group)
        close(ones, torch.full((2,), float(WORLD)))
        assert dist.get_backend(group) == (spelled or "nccl").lower(), (spelled, dist.get_backend(group))
    return dist.get_backend_config()


@check
def objects_and_barriers() -> object:
    found: list[Any] = [None] * WORLD
    dist.all_gather_object(found, {"rank": RANK, "tensor": torch.full((2,), RANK, device=HERE)})
    assert [each["rank"] for each in found] == list(range(WORLD))
    sent = [{"from": "root"} if RANK == 0 else None]
    dist.broadcast_object_list(sent, 0, device=HERE)
    assert sent[0] == {"from": "root"}
    dist.barrier(device_ids=[LOCAL])
    assert dist.get_node_local_rank() == LOCAL
    return str(found[-1]["tensor"].device)


# --- collectives ------------------------------------------------------------------------------------------------

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.bool, torch.complex64),
]
MOVED = {
    "broadcast": lambda t: (dist.broadcast(t, WORLD - 1), t)[1],
    "all_gather": lambda t: _gathered(lambda parts: dist.all_gather(parts, t), t),
    "all_gather_into_tensor": lambda t: _into(lambda out: dist.all_gather_into_tensor(out, t), t),
    "gather": lambda t: _gathered(lambda parts: dist.gather(t, parts if RANK == 0 else None, 0), t),
    "scatter": lambda t: (dist.scatter(t, [t.clone()] * WORLD if RANK == 0 else None, 0), t)[1],
    "all_to_all": lambda t: _gathered(lambda parts: dist.all_to_all(parts, [t.clone()] * WORLD), t),
    "all_to_all_single": lambda t: _into(lambda out: dist.all_to_all_single(out, torch.cat([t] * WORLD)), t),
    "send_recv": lambda t: (dist.send(t, 1) if RANK == 0 else dist.recv(t, 0) if RANK == 1 else None, t)[1],
}
EXPECTED = {
    "broadcast": lambda of: of(WORLD - 1),
    "gather": lambda of: torch.stack([of(rank) for rank in range(WORLD)]) if RANK == 0 else None,
    "scatter": lambda of: of(0),
    "send_recv": lambda of: of(0 if RANK == 1 else RANK),
}


def _gathered(collect: Callable[[Any], object], like: torch.Tensor) -> torch.Tensor:
    parts = [torch.zeros_like(like.float()).to(like.dtype) for _ in range(WORLD)]
    collect(parts)
    return torch.stack([part.float() if not part.is_complex() else part for part in parts])


def _into(collect: Callable[[Any], object], like: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(WORLD * len(like), device=like.device).to(like.dtype)
    collect(out)
    return out.view(WORLD, -1)


def _numbers(dtype: torch.dtype, rank: int = RANK) -> torch.Tensor:
    values = torch.arange(1.0, 5.0) + rank if dtype is not torch.bool else torch.tensor([1.0, rank, 0.0, 1.0])
    return values.to(HERE).to(dtype)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor if tensor.is_complex() else tensor.float()).cpu()


@check
def collectives_that_move() -> object:
    done = 0
    for dtype in DTYPES:
        if _lacks(dtype):
            continue
        for name, run in MOVED.items():
            found = run(_numbers(dtype))
            whole = EXPECTED.get(name, lambda of: torch.stack([of(rank) for rank in range(WORLD)]))
            expected = whole(lambda rank, dtype=dtype: _plain(_numbers(dtype, rank)))
            if expected is not None:
                assert torch.equal(_plain(found), expected), (name, dtype, found, expected)
            done += 1
    return done


def _lacks(dtype: torch.dtype) -> bool:
    """The MPS framework has neither float64 nor float8."""
    return HERE.type == "mps" and dtype in (torch.float64, torch.float8_e4m3fn)


@check
def collectives_that_reduce() -> object:
    done = 0
    operations = {
        "SUM": lambda all_: all_.sum(0),
        "AVG": lambda all_: all_.mean(0),
        "MAX": lambda all_: all_.amax(0),
        "MIN": lambda all_: all_.amin(0),
        "PRODUCT": lambda all_: all_.prod(0),
    }
    for dtype in DTYPES:
        if _lacks(dtype) or dtype in (torch.bool, torch.complex64):
            continue
        everybody = torch.stack([_plain(_numbers(dtype, rank)) for rank in range(WORLD)])
        for name, reduce in operations.items():
            if name == "PRODUCT" and dtype is torch.float8_e4m3fn:
                continue
            operation = getattr(dist.ReduceOp, name)
            expected = reduce(everybody)
            if not dtype.is_floating_point:
                expected = expected.trunc()
            expected = _plain(expected.to(dtype))
            whole = _numbers(dtype)
            dist.all_reduce(whole, op=operation)
            close(_plain(whole), expected, msg=lambda text, n=name, d=dtype: f"all_reduce {n} {d}: {text}")
            to_root = _numbers(dtype)
            dist.reduce(to_root, 0, op=operation)
            if RANK == 0:
                close(_plain(to_root), expected)
            part = _numbers(dtype)
            dist.reduce_scatter(part, [_numbers(dtype) for _ in range(WORLD)], op=operation)
            close(_plain(part), expected)
            repeated = torch.cat([_numbers(dtype)] * WORLD)
            dist.reduce_scatter_tensor(part, repeated, op=operation)
            close(_plain(part), expected)
            done += 4
    for factor in (0.5, 3.0):
        scaled = torch.ones(3, device=HERE)
        dist.all_reduce(scaled, op=dist.ReduceOp.PREMUL_SUM(factor))
        close(scaled, torch.full((3,), factor * WORLD))
    return done


@check
def collectives_that_wait() -> object:
    """Asynchronous, coalesced, batched, in autograd's own threads, on parts of the group."""
    whole = torch.full((3,), RANK + 1, device=HERE, dtype=torch.int16)
    work = dist.all_reduce(whole, async_op=True)
    work.wait()
    assert whole.tolist() == [sum(range(1, WORLD + 1))] * 3
    future = dist.all_reduce(torch.ones(2, device=HERE), async_op=True).get_future()
    close(future.wait()[0], torch.full((2,), float(WORLD)))
    tensors = [torch.ones(2, device=HERE), torch.ones(3, device=HERE)]
    with dist._coalescing_manager(device=HERE):
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert [tensor.sum().item() for tensor in tensors] == [2.0 * WORLD, 3.0 * WORLD]
    received = torch.zeros(2, device=HERE)
    sending = torch.full((2,), float(RANK), device=HERE)
    operations = [
        dist.P2POp(dist.isend, sending, (RANK + 1) % WORLD),
        dist.P2POp(dist.irecv, received, (RANK - 1) % WORLD),
    ]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    assert received.tolist() == [float((RANK - 1) % WORLD)] * 2
    halves = [list(range(WORLD // 2)), list(range(WORLD // 2, WORLD))]
    half = dist.split_group(split_ranks=halves)
    ones = torch.ones(1, device=HERE)
    dist.all_reduce(ones, group=half)
    assert ones.item() == len(halves[0])
    uneven = [torch.zeros(rank + 1, device=HERE) for rank in range(WORLD)]
    dist.all_gather(uneven, torch.full((RANK + 1,), float(RANK), device=HERE))
    assert [part.tolist() for part in uneven] == [[float(rank)] * (rank + 1) for rank in range(WORLD)]
    dist.all_to_all(uneven, [torch.full((RANK + 1,), float(RANK), device=HERE) for _ in range(WORLD)])
    assert [part.tolist() for part in uneven] == [[float(rank)] * (rank + 1) for rank in range(WORLD)]
    flat = torch.zeros(1, 3 * WORLD, device=HERE)
    dist.all_gather_into_tensor(flat, torch.full((3,), float(RANK), device=HERE))
    assert flat.view(WORLD, 3)[:, 0].tolist() == [float(rank) for rank in range(WORLD)]
    return None


@check
def sparse_gradients() -> object:
    """Everybody has other rows: the sum has more of them than any part."""
    part = torch.sparse_coo_tensor([[RANK, WORLD]], [1.0, 2.0], (WORLD + 1,)).to(HERE)
    dist.all_reduce(part)
    assert part.device.type == HERE.type
    close(part.to_dense(), torch.tensor([1.0] * WORLD + [2.0 * WORLD]))
    return None


# --- training ---------------------------------------------------------------------------------------------------


def wrapped(net: nn.Module, **options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(net, device_ids=[LOCAL], output_device=LOCAL, **options)


@check
def ddp() -> object:
    return same_losses(wrapped(network(), bucket_cap_mb=1), network())


@check
def ddp_with_unused_parameters() -> object:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = network(), network(1)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.used(inputs)

    return same_losses(wrapped(Half(), find_unused_parameters=True, gradient_as_bucket_view=True), network())


@check
def ddp_without_synchronisation() -> object:
    inputs, target = data()
    net = wrapped(network())
    (part, goal) = mine(inputs), mine(target)
    with net.no_sync():
        (net(part[:2]) - goal[:2]).square().sum().backward()
    assert (torch.stack(_everybodys(net.module[0].weight.grad)).std(0).sum() > 0).item()
    (net(part[2:]) - goal[2:]).square().sum().backward()
    alone = network()
    (alone(inputs) - target).square().sum().backward()
    close(net.module[0].weight.grad * WORLD, alone[0].weight.grad, rtol=1e-4, atol=1e-5)
    return None


def _everybodys(tensor: torch.Tensor) -> list[torch.Tensor]:
    parts = [torch.empty_like(tensor) for _ in range(WORLD)]
    dist.all_gather(parts, tensor)
    return parts


@check
def ddp_with_comm_hooks() -> object:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    loose = {"rtol": 0.05, "atol": 0.05}
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook):
        net = wrapped(network())
        net.register_comm_hook(None, hook)
        same_losses(net, network(), **loose)
    net = wrapped(network())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
    net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    same_losses(net, network(), rtol=0.2, atol=0.2)
    return None


@check
def ddp_with_the_optimizer_in_backward() -> object:
    from torch.distributed.optim import _apply_optimizer_in_backward

    alone, inside = network(), network()
    _apply_optimizer_in_backward(torch.optim.SGD, inside.parameters(), {"lr": 0.1})
    parallel = wrapped(inside)
    inputs, target = data()
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for _ in range(3):
        nn.functional.mse_loss(parallel(mine(inputs)), mine(target)).backward()
        optimizer.zero_grad()
        nn.functional.mse_loss(alone(inputs), target).backward()
        optimizer.step()
    close(list(inside.parameters()), list(alone.parameters()))
    return None


@check
def ddp_with_uneven_inputs() -> object:
    """Whoever has no more data stands in for itself with zeros until the last has none."""
    net = wrapped(network())
    inputs, target = data()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    steps = 0
    with net.join():
        for _ in range(2 + 2 * RANK):
            optimizer.zero_grad()
            (net(mine(inputs)) - mine(target)).square().mean().backward()
            optimizer.step()
            steps += 1
    for parameter in net.parameters():
        for other in _everybodys(parameter.detach()):
            close(other, parameter)
    return steps


@check
def compiled_ddp() -> object:
    net = torch.compile(network(), backend="aot_eager")
    return same_losses(wrapped(net), network())


@check
def sync_batch_norm() -> object:
    inputs, target = data()
    alone = network(batch_norm=True)
    expected = train(alone, inputs, target)
    net = wrapped(nn.SyncBatchNorm.convert_sync_batchnorm(network(batch_norm=True)))
    assert isinstance(net.module[1], nn.SyncBatchNorm)
    close(averaged(train(net, mine(inputs), mine(target))), torch.stack(expected), rtol=1e-4, atol=1e-5)
    close(net.module[1].running_mean, alone[1].running_mean)
    close(net.module[1].running_var, alone[1].running_var)
    return net.module[1].running_var[:2].tolist()


@check
def zero_redundancy_optimizer() -> object:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = wrapped(network())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1)
    return same_losses(net, network(), optimizer=optimizer)


@check
def fsdp1() -> object:
    from torch.distributed.fsdp import FullyShardedDataParallel

    net = FullyShardedDataParallel(network(), device_id=torch.cuda.current_device())
    return same_losses(net, network(), optimizer=torch.optim.SGD(net.parameters(), lr=0.1), rtol=1e-4, atol=1e-5)


def sharded() -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    net = network()
    for layer in (net[0], net[2]):
        fully_shard(layer)
    return fully_shard(net)


@check
def fsdp2() -> object:
    inputs, _ = data()
    net = sharded()
    close(net(inputs), network()(inputs))
    return same_losses(net, network(), optimizer=torch.optim.SGD(net.parameters(), lr=0.1), rtol=1e-4, atol=1e-5)


@check
def tensor_parallel() -> object:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cuda", (WORLD,), mesh_dim_names=("tp",))
    inputs, target = data()
    net = parallelize_module(network(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    assert net[0].weight.to_local().shape == (16 // WORLD, 8)
    alone = network()
    close(net(inputs), alone(inputs))
    (net(inputs) - target).square().mean().backward()
    (alone(inputs) - target).square().mean().backward()
    close(net[0].weight.grad.full_tensor(), alone[0].weight.grad)
    return mesh.device_type


@check
def dtensors() -> object:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    mesh = DeviceMesh("cuda", list(range(WORLD)))
    torch.manual_seed(3)
    whole = torch.randn(4 * WORLD, 4 * WORLD).cuda()
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    close(rows.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
    close((rows @ rows.redistribute(mesh, [Replicate()])).full_tensor(), whole @ whole)
    close(rows.mean().full_tensor(), whole.mean())
    parts = torch.distributed.tensor.DTensor.from_local(torch.ones(2).cuda(), mesh, [Partial("avg")])
    close(parts.full_tensor(), torch.ones(2))
    return mesh.device_type


@check
def sampler_and_data_parallel() -> object:
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    rows = TensorDataset(torch.arange(12.0))
    seen = [value for (batch,) in DataLoader(rows, 2, sampler=DistributedSampler(rows)) for value in batch.tolist()]
    everybodys: list[Any] = [None] * WORLD
    dist.all_gather_object(everybodys, seen)
    assert sorted(value for part in everybodys for value in part) == [float(n) for n in range(12)]
    net = network()
    inputs, _ = data()
    close(nn.DataParallel(net, device_ids=[LOCAL])(inputs), net(inputs))
    return None


@check
def checkpoint() -> object:
    """Saved by all ranks; the test loads it with one."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    net = sharded()
    inputs, target = data()
    train(net, mine(inputs), mine(target), optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    folder = Path(sys.argv[1]).with_suffix(".checkpoint")
    dcp.save({"model": get_model_state_dict(net)}, checkpoint_id=folder)
    alone = network()
    train(alone, inputs, target)
    return {name: value.tolist() for name, value in alone.state_dict().items()}


TIMEOUT = timedelta(seconds=60)


def main() -> None:
    """A check that fails on one rank would leave the others out of step: then everybody starts a group anew."""
    torch.cuda.set_device(LOCAL)
    dist.init_process_group("nccl", device_id=torch.device("cuda", LOCAL), timeout=TIMEOUT)
    agreed = dist.FileStore(f"{sys.argv[1]}.store", WORLD)
    results: dict[str, Any] = {}
    for number, name in enumerate(sys.argv[2:] or CHECKS):
        try:
            results[name] = {"ok": True, "said": CHECKS[name]()}
        except Exception:
            results[name] = {"ok": False, "said": traceback.format_exc()}
        agreed.set(f"{name}/{RANK}", str(results[name]["ok"]))
        keys = [f"{name}/{rank}" for rank in range(WORLD)]
        agreed.wait(keys, TIMEOUT * 2)
        if any(agreed.get(key) == b"False" for key in keys):
            dist.destroy_process_group()
            store = dist.FileStore(f"{sys.argv[1]}.store{number}", WORLD)
            dist.init_process_group("nccl", store=store, rank=RANK, world_size=WORLD, timeout=TIMEOUT)
    everybodys: list[Any] = [None] * WORLD
    dist.all_gather_object(everybodys, results)
    if RANK == 0:
        device = str(torch.ones(1, device=HERE).device)
        Path(sys.argv[1]).write_text(json.dumps({"device": device, "ranks": everybodys, "told": _told()}))
    dist.barrier()
    dist.destroy_process_group()


def _told() -> list[list[str]]:
    import torchdevice

    return [[row.api, row.asked, row.given] for row in torchdevice.report().rows] if torchdevice.is_active() else []


if __name__ == "__main__":
    main()
