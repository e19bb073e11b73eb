"""torch._C functions behind torch.cuda.comm and torch.cuda.nccl: scatter, gather, reduce within one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchdevice.answers.devices import NCCL_VERSION

Devices = Sequence[int]


def _device(index: int) -> torch.device:
    return torch.device("cpu") if index == -1 else torch.device("cuda", index)


def broadcast(tensor: Tensor, devices: Devices) -> list[Tensor]:
    return [tensor if _device(d) == tensor.device else tensor.to(_device(d)) for d in devices]


def broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(t.copy_(tensor) for t in out)


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Devices, buffer_size: int) -> list[list[Tensor]]:
    return [[t if _device(d) == t.device else t.to(_device(d)) for t in tensors] for d in devices]


def scatter(tensor: Tensor, devices: Devices, sizes: Any = None, dim: int = 0, streams: Any = None) -> list[Tensor]:
    parts = tensor.split(list(sizes), dim) if sizes is not None else tensor.chunk(len(devices), dim)
    return [part.to(_device(d)) for part, d in zip(parts, devices, strict=False)]


def scatter_out(tensor: Tensor, out: Sequence[Tensor], dim: int = 0, streams: Any = None) -> tuple[Tensor, ...]:
    parts = tensor.split([t.size(dim) for t in out], dim)
    return tuple(t.copy_(part) for t, part in zip(out, parts, strict=True))


def gather(tensors: Sequence[Tensor], dim: int, destination: int | None = None) -> Tensor:
    index = torch.cuda.current_device() if destination is None else destination
    return torch.cat([t.to(_device(index)) for t in tensors], dim)


def gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    return out.copy_(torch.cat([t.to(out.device) for t in tensors], dim))


def _total(inputs: Sequence[Tensor]) -> Tensor:
    total = inputs[0].clone()
    for other in inputs[1:]:
        total += other.to(total.device)
    return total


def nccl_all_reduce(inputs: Sequence[Tensor], outputs: Sequence[Tensor], *_: Any) -> None:
    total = _total(inputs)
    for out in outputs:
        out.copy_(total)


def nccl_reduce(inputs: Sequence[Tensor], output: Tensor, *_: Any) -> None:
    output.copy_(_total(inputs))


def nccl_broadcast(inputs: Sequence[Tensor], root: int, *_: Any) -> None:
    for tensor in inputs:
        tensor.copy_(inputs[root])


def nccl_all_gather(inputs: Sequence[Tensor], outputs: Sequence[Tensor], *_: Any) -> None:
    for out in outputs:
        out.copy_(torch.cat([t.reshape(-1).to(out.device) for t in inputs]).view_as(out))


def nccl_reduce_scatter(inputs: Sequence[Tensor], outputs: Sequence[Tensor], *_: Any) -> None:
    for out, part in zip(outputs, _total(inputs).chunk(len(outputs)), strict=True):
        out.copy_(part.view_as(out))


TABLE = {
    "_broadcast": broadcast,
    "_broadcast_out": broadcast_out,
    "_broadcast_coalesced": broadcast_coalesced,
    "_scatter": scatter,
    "_scatter_out": scatter_out,
    "_gather": gather,
    "_gather_out": gather_out,
    "_nccl_all_reduce": nccl_all_reduce,
    "_nccl_reduce": nccl_reduce,
    "_nccl_broadcast": nccl_broadcast,
    "_nccl_all_gather": nccl_all_gather,
    "_nccl_reduce_scatter": nccl_reduce_scatter,
    "_nccl_version": lambda: NCCL_VERSION,
    "_nccl_version_suffix": lambda: b"",
}
