"""What torch asks for copies and collectives between the devices of one process: torch.cuda.comm, torch.cuda.nccl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchdevice._torch.core import RealDevice
from torchdevice.answers.device import Device, Table, constant
from torchdevice.answers.devices import NCCL_VERSION


def nccl_functions() -> Table:
    """Collectives over a list of tensors in one process, which is what `torch.cuda.nccl` offers."""

    def all_reduce(inputs: Any, outputs: Any, *_: Any) -> None:
        result = _total(inputs)
        for output in outputs:
            output.copy_(result)

    def reduce(inputs: Any, output: torch.Tensor, *_: Any) -> None:
        output.copy_(_total(inputs))

    def broadcast(inputs: Any, root: int, *_: Any) -> None:
        for each in inputs:
            each.copy_(inputs[root])

    def all_gather(inputs: Any, outputs: Any, *_: Any) -> None:
        gathered = torch.cat([each.reshape(-1).to(inputs[0].device) for each in inputs])
        for output in outputs:
            output.copy_(gathered.view_as(output))

    def reduce_scatter(inputs: Any, outputs: Any, *_: Any) -> None:
        for output, part in zip(outputs, _total(inputs).reshape(len(outputs), -1), strict=True):
            output.copy_(part.view_as(output))

    return {
        "_nccl_version": constant(NCCL_VERSION),
        "_nccl_version_suffix": constant(b""),
        "_nccl_unique_id": lambda: bytes(128),
        "_nccl_init_rank": constant(None),
        "_nccl_all_reduce": all_reduce,
        "_nccl_reduce": reduce,
        "_nccl_broadcast": broadcast,
        "_nccl_all_gather": all_gather,
        "_nccl_reduce_scatter": reduce_scatter,
    }


def comm_functions(device: Device) -> Table:
    """`broadcast`, `scatter`, `gather` between devices of one process; on one device a copy is the tensor itself."""

    def on(tensor: torch.Tensor, index: int) -> torch.Tensor:
        """The tensor on a device; -1 is the host."""
        if device.type == "cpu":
            return tensor
        if index < 0:
            return tensor.to(RealDevice("cpu"))
        return tensor.to(RealDevice(device.type, index if device.own_streams else 0))

    def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
        copies = [on(tensor, index) for index in devices]
        return [copy.clone() if position and copy is tensor else copy for position, copy in enumerate(copies)]

    def broadcast_out(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return tuple(each.copy_(tensor) for each in out)

    def broadcast_coalesced(tensors: Any, devices: Any, buffer_size: int) -> list[list[torch.Tensor]]:
        copies = [broadcast(tensor, devices) for tensor in tensors]
        return [[copy[position] for copy in copies] for position, _ in enumerate(devices)]

    def scatter(tensor: torch.Tensor, devices: Any, chunk_sizes: Any = None, dim: int = 0, _: Any = None) -> Any:
        parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
        return tuple(on(part, index).contiguous() for part, index in zip(parts, devices, strict=False))

    def scatter_out(tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int = 0, _: Any = None) -> Any:
        parts = tensor.split([each.size(dim) for each in out], dim)
        return tuple(each.copy_(part) for each, part in zip(out, parts, strict=True))

    def gather(tensors: Any, dim: int, destination: Any) -> torch.Tensor:
        index = device.current() if destination is None else destination
        return torch.cat([on(tensor, index) for tensor in tensors], dim)

    def gather_out(tensors: Any, out: torch.Tensor, dim: int) -> torch.Tensor:
        return out.copy_(torch.cat([tensor.to(out.device) for tensor in tensors], dim))

    return {
        "_broadcast": broadcast,
        "_broadcast_out": broadcast_out,
        "_broadcast_coalesced": broadcast_coalesced,
        "_scatter": scatter,
        "_scatter_out": scatter_out,
        "_gather": gather,
        "_gather_out": gather_out,
    }


def reduce_add(inputs: Any, destination: Any = None) -> torch.Tensor:
    """`comm.reduce_add` where all devices are one: torch's own refuses tensors on the CPU."""
    sizes = {tuple(each.size()) for each in inputs}
    if len(sizes) > 1:
        raise ValueError(f"inputs have different sizes: {sorted(sizes)}")
    return _total(inputs) if len(inputs) > 1 else inputs[0]


def _total(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    first = inputs[0].clone()
    for other in inputs[1:]:
        first += other.to(first.device)
    return first
