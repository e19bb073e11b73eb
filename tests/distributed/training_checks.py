"""Checks of `program`: whatever trains in parallel or sharded, against one process on the whole batch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.distributed.checks import (
    LOCAL,
    RANK,
    WORLD,
    averaged,
    check,
    close,
    data,
    mine,
    network,
    same_losses,
    train,
)


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


def _everywhere_equal(tensor: torch.Tensor) -> bool:
    return all(torch.equal(each, tensor) for each in _everybodys(tensor))


@check
def ddp_with_comm_hooks() -> object:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    loose = {"rtol": 0.05, "atol": 0.05}
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook):
        net = wrapped(network())
        net.register_comm_hook(None, hook)
        same_losses(net, network(), **loose)
    net = wrapped(network())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    same_losses(net, network(), rtol=0.2, atol=0.2)
    assert state.total_numel_after_compression < state.total_numel_before_compression

    half = torch.tensor(1 / WORLD).cuda()

    def averaging(_: object, bucket: Any) -> Any:
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0] * half)

    averaging.__annotations__.clear()  # torch compares them with classes, and these are strings

    net = wrapped(network())
    net.register_comm_hook(None, averaging)
    same_losses(net, network(), **loose)
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


@check
def fsdp1_with_parameters_on_the_host() -> object:
    from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel

    net = FullyShardedDataParallel(
        network(), device_id=torch.cuda.current_device(), cpu_offload=CPUOffload(offload_params=True)
    )
    assert {parameter.device.type for parameter in net.parameters()} == {"cpu"}
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
def random_dtensors() -> object:
    """As on CUDA: shards differ, copies and generators are equal on all ranks, and a seed repeats everything."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, randn
    from torch.nn import functional

    mesh = init_device_mesh("cuda", (WORLD,))
    rows = distribute_tensor(torch.ones(4 * WORLD, 16).cuda(), mesh, [Shard(0)])
    copies = distribute_tensor(torch.ones(4, 4).cuda(), mesh, [Replicate()])
    mine = torch.Generator("cuda")

    def drawn() -> list[torch.Tensor]:
        torch.manual_seed(4)
        mine.manual_seed(5)
        made = [
            randn(4 * WORLD, 16, device_mesh=mesh, placements=[Shard(0)]),
            functional.dropout(rows, 0.5),
            torch.rand_like(rows),
            nn.init.normal_(rows.clone()),
            torch.empty_like(rows).uniform_(generator=mine),
        ]
        return [each.full_tensor() for each in made]

    for first, again in zip(drawn(), drawn(), strict=True):
        close(again, first, rtol=0, atol=0)
        assert not any(torch.equal(first[:4], part) for part in first.split(4)[1:]), first
        assert _everywhere_equal(first)
    few = distribute_tensor(torch.ones(2 * WORLD).cuda(), mesh, [Shard(0)])
    assert len(set(torch.rand_like(few).full_tensor().tolist())) == 2 * WORLD
    nn.init.normal_(distribute_tensor(torch.empty(1, 64).cuda(), mesh, [Shard(0)]))  # one rank has all of it
    assert _everywhere_equal(torch.randn(3, device="cuda")), "the generators of the ranks differ"
    assert _everywhere_equal(torch.rand_like(copies).to_local())
    torch.manual_seed(6)
    whole = torch.rand_like(copies.to_local())
    torch.manual_seed(6)
    close(torch.rand_like(copies).to_local(), whole, rtol=0, atol=0)
    own = torch.empty_like(copies).uniform_(generator=mine.manual_seed(7)).to_local()
    close(own, torch.empty_like(own).uniform_(generator=mine.manual_seed(7)), rtol=0, atol=0)
    return None


@check
def parameters_drawn_after_sharding() -> object:
    """Made on the device `meta`, sharded, and then drawn by the layers themselves."""
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(8, 4 * WORLD), nn.ReLU(), nn.Linear(4 * WORLD, 8))
    fully_shard(net)
    net.to_empty(device="cuda")
    torch.manual_seed(8)
    for layer in (net[0], net[2]):
        layer.reset_parameters()
    weight = net[0].weight.full_tensor()
    assert not any(torch.equal(weight[:4], part) for part in weight.split(4)[1:])
    assert 0 < weight.std() < 1
    inputs, target = data()
    losses = averaged(train(net, inputs, target))
    assert losses[-1] < losses[0]
    return None


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
