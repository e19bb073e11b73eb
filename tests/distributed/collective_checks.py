"""Checks of `program`: names of backends, objects, and every collective with every dtype."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from tests.distributed.checks import (
    HERE,
    LOCAL,
    RANK,
    WORLD,
    check,
    close,
)


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


STRIDED = {
    "all_reduce": lambda t: dist.all_reduce(t),
    "broadcast": lambda t: dist.broadcast(t, WORLD - 1),
    "reduce": lambda t: dist.reduce(t, 0),
    "all_gather": lambda t: dist.all_gather([torch.zeros(2, 2, device=HERE) for _ in range(WORLD)], t),
    "all_gather_into_tensor": lambda t: dist.all_gather_into_tensor(torch.zeros(2 * WORLD, 2, device=HERE), t),
    "all_to_all_single": lambda t: dist.all_to_all_single(t, torch.zeros(2, 2, device=HERE)),
    "reduce_scatter_tensor": lambda t: dist.reduce_scatter_tensor(t, torch.zeros(2 * WORLD, 2, device=HERE)),
}


@check
def strided_tensors() -> object:
    """NCCL refuses a tensor with gaps. Where memory is staged in copies it may be right instead, but never wrong."""
    refused = []
    for collective in STRIDED.values():
        whole = torch.arange(8.0, device=HERE).view(2, 4)
        try:
            collective(whole[:, ::2])
        except ValueError as error:
            refused.append(str(error))
            close(whole, torch.arange(8.0).view(2, 4))
        else:
            close(whole[:, 1::2], torch.arange(8.0).view(2, 4)[:, 1::2])
    parts = [torch.arange(8.0, device=HERE).view(2, 4)[:, ::2] + 10 * number for number in range(WORLD)]
    strided = [torch.zeros(2, 4, device=HERE)[:, ::2].copy_(part) for part in parts]
    received = torch.zeros(2, 2, device=HERE)
    dist.scatter(received, strided if RANK == 0 else None, 0)
    close(received, parts[RANK])
    image = torch.ones(1, 2, 2, 4, device=HERE).contiguous(memory_format=torch.channels_last)
    dist.all_reduce(image)
    close(image, torch.full((1, 2, 2, 4), float(WORLD)))
    assert refused in ([], ["Tensors must be contiguous"] * len(STRIDED))
    return len(refused)


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
    # torch 2.9 makes this reduction only where NCCL is, and does not tell the factor.
    for factor in (0.5, 3.0) if hasattr(dist.ReduceOp, "factor") else ():
        scaled = torch.ones(3, device=HERE)
        dist.all_reduce(scaled, op=dist.ReduceOp.PREMUL_SUM(factor))
        close(scaled, torch.full((3,), factor * WORLD))
    return done


@check
def results_of_works() -> object:
    """A work and its future have the tensors that the collective wrote."""
    x, out = torch.ones(2, device=HERE), torch.zeros(2, device=HERE)
    parts, whole = [torch.zeros(2, device=HERE) for _ in range(WORLD)], torch.zeros(2 * WORLD, device=HERE)
    calls: dict[str, tuple[Callable[[], Any], list[torch.Tensor]]] = {
        "all_reduce": (lambda: dist.all_reduce(x, async_op=True), [x]),
        "broadcast": (lambda: dist.broadcast(x, 0, async_op=True), [x]),
        "all_gather": (lambda: dist.all_gather(parts, x, async_op=True), parts),
        "all_gather_into_tensor": (lambda: dist.all_gather_into_tensor(whole, x, async_op=True), [whole]),
        "reduce_scatter": (lambda: dist.reduce_scatter(out, parts, async_op=True), [out]),
        "reduce_scatter_tensor": (lambda: dist.reduce_scatter_tensor(out, whole, async_op=True), [out]),
        "all_to_all": (lambda: dist.all_to_all_single(whole, whole.clone(), async_op=True), [whole]),
    }
    for name, (call, written) in calls.items():
        work = call()
        future = work.get_future()
        future.wait()
        assert work.is_success(), name
        work.wait()
        for found in (future.wait(), future.then(lambda done: done.value()).wait(), work.result()):
            assert [(each.device, each.data_ptr()) for each in found] == [
                (each.device, each.data_ptr()) for each in written
            ], f"{name}: {[each.device for each in found]}"
        work = call()
        assert work.wait()
        written[0].fill_(7)
        assert work.wait()  # a second wait does nothing
        assert work.is_completed()
        assert work.get_future().wait()[0].tolist() == written[0].tolist() == [7] * written[0].numel(), name
    return None


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
