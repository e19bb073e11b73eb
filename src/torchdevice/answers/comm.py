"""Copies and collectives between the devices of one process: torch.cuda.comm, torch.cuda.nccl, torch.nn.parallel.

The functions of torch._C come first. The helpers of `torch.nn.parallel` reject CPU tensors and require CUDA devices. If
all requested devices map to one target device, the functions at the end replace them. Their first argument is that
device. The other arguments are those of torch's function of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchdevice._torch.core import RealDevice, RealTensor
from torchdevice.answers.device import Device, Table, constant
from torchdevice.answers.devices import NCCL_VERSION


def nccl_functions() -> Table:
    """Collectives over a list of tensors in one process, as in `torch.cuda.nccl`."""

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
    """`broadcast`, `scatter`, `gather` within one process. On its own device, a tensor itself is the first copy."""

    def on(tensor: torch.Tensor, index: int) -> torch.Tensor:
        """The tensor on the device with this index; -1 is the host."""
        if device.type == "cpu":
            return tensor
        if index < 0:
            return tensor.to(RealDevice("cpu"))
        return tensor.to(device.place(index))

    def check_places(tensors: Sequence[torch.Tensor], group: str, one: str) -> None:
        """Raises torch's error for tensors on the wrong device. If the CPU is the target, all tensors pass."""
        for index, each in enumerate(tensors):
            _check(
                device.type in ("cpu", each.device.type),
                f"Expected all {group} tensors to be CUDA tensors, but {one} at index {index} has device "
                f"'{each.device}'",
            )

    def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
        copies: list[torch.Tensor] = []
        for index in devices:
            copy = on(tensor, index)
            copies.append(copy.clone() if any(copy is each for each in copies) else copy)
        return copies

    def broadcast_out(tensor: torch.Tensor, out: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        check_places(out, "output", "output tensor")
        for index, each in enumerate(out):
            _check(
                each.shape == tensor.shape,
                f"Expected all output tensors to have same shape as the source tensor {list(tensor.shape)}, but output "
                f"tensor at index {index} has shape {list(each.shape)}",
            )
        return tuple(each.copy_(tensor) for each in out)

    def broadcast_coalesced(tensors: Any, devices: Any, buffer_size: int) -> list[list[torch.Tensor]]:
        copies = [broadcast(tensor, devices) for tensor in tensors]
        return [[copy[position] for copy in copies] for position, _ in enumerate(devices)]

    def scatter(tensor: torch.Tensor, devices: Any, chunk_sizes: Any = None, dim: int = 0, _: Any = None) -> Any:
        _check(len(devices) > 0, "Expected at least one device to scatter to")
        _check(
            not chunk_sizes or len(chunk_sizes) == len(devices),
            f"Expected devices and chunk_sizes to be of same length, but got len(devices) = {len(devices)} and "
            f"len(chunk_sizes) = {len(chunk_sizes or ())}",
        )
        parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
        return tuple(on(part, index) for part, index in zip(parts, devices, strict=False))

    def scatter_out(tensor: torch.Tensor, out: Sequence[torch.Tensor], dim: int = 0, _: Any = None) -> Any:
        _check(len(out) > 0, "Expected at least one output tensor to scatter to")
        check_places(out, "output", "output tensor")
        for index, each in enumerate(out):
            _check(_fits(each, tensor, dim), f"Output tensor at index {index} has incorrect shape: {list(each.shape)}")
        total = sum(each.size(dim) for each in out)
        _check(
            total == tensor.size(dim),
            f"Total size for output tensors along scatter dim {dim % tensor.dim()} does not match the input size at "
            f"that dim {tensor.size(dim)}, but got {total}",
        )
        parts = tensor.split([each.size(dim) for each in out], dim)
        return tuple(each.copy_(part) for each, part in zip(out, parts, strict=True))

    def check_gathered(tensors: Sequence[torch.Tensor], dim: int) -> None:
        _check(len(tensors) > 0, "Expected at least one tensor to gather from")
        check_places(tensors, "input", "tensor")
        first = tensors[0]
        for index, each in enumerate(tensors):
            _check(
                each.dim() == first.dim(),
                f"Expected all input tensors to have the same number of dimensions, but tensor at index {index} has "
                f"{each.dim()} dimensions, (expected {first.dim()})",
            )
            _check(
                _fits(each, first, dim),
                f"Input tensor at index {index} has invalid shape {list(each.shape)}, but expected {list(first.shape)}",
            )

    def gather(tensors: Any, dim: int, destination: Any) -> torch.Tensor:
        check_gathered(tensors, dim)
        index = device.current() if destination is None else destination
        return torch.cat([on(tensor, index) for tensor in tensors], dim)

    def gather_out(tensors: Any, out: torch.Tensor, dim: int) -> torch.Tensor:
        check_gathered(tensors, dim)
        joined = torch.cat([tensor.to(out.device) for tensor in tensors], dim)
        _check(
            out.shape == joined.shape,
            f"Expected out tensor to have shape {list(joined.shape)}, but got {list(out.shape)}",
        )
        return out.copy_(joined)

    return {
        "_broadcast": broadcast,
        "_broadcast_out": broadcast_out,
        "_broadcast_coalesced": broadcast_coalesced,
        "_scatter": scatter,
        "_scatter_out": scatter_out,
        "_gather": gather,
        "_gather_out": gather_out,
    }


def _check(holds: bool, otherwise: str) -> None:
    """Raises RuntimeError with torch's own message, because programs match it."""
    if not holds:
        raise RuntimeError(otherwise)


def _fits(tensor: torch.Tensor, other: torch.Tensor, dim: int) -> bool:
    """Whether two shapes are equal except in one dimension."""
    if tensor.dim() != other.dim():
        return False
    sizes = [list(each.shape) for each in (tensor, other)]
    for size in sizes:
        size[dim] = 0
    return sizes[0] == sizes[1]


def reduce_add(inputs: Any, destination: Any = None) -> torch.Tensor:
    """`comm.reduce_add` for a single target device. torch's own function rejects CPU tensors."""
    sizes = {tuple(each.size()) for each in inputs}
    if len(sizes) > 1:
        raise ValueError(f"inputs have different sizes: {sorted(sizes)}")
    return _total(inputs) if len(inputs) > 1 else inputs[0]


def _total(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    first = inputs[0].clone()
    for other in inputs[1:]:
        first += other.to(first.device)
    return first


def scatter_on_one(device: RealDevice, inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """One part per device. Tensors are split along `dim`; each device gets every other object."""
    count = len(target_gpus)
    if isinstance(inputs, RealTensor):
        return tuple(inputs.to(device).chunk(count, dim))
    if isinstance(inputs, tuple) and inputs:
        parts = list(zip(*(scatter_on_one(device, each, target_gpus, dim) for each in inputs), strict=False))
        return [type(inputs)(*part) for part in parts] if hasattr(inputs, "_fields") else parts
    if isinstance(inputs, list) and inputs:
        return [
            list(part)
            for part in zip(*(scatter_on_one(device, each, target_gpus, dim) for each in inputs), strict=False)
        ]
    if isinstance(inputs, dict) and inputs:
        columns = zip(*(scatter_on_one(device, each, target_gpus, dim) for each in inputs.values()), strict=False)
        return [type(inputs)(zip(inputs, part, strict=True)) for part in columns]
    return [inputs for _ in range(count)]


def gather_on_one(device: RealDevice, outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Joins the parts along `dim` and keeps their structure."""
    first = outputs[0]
    if isinstance(first, RealTensor):
        return torch.stack(list(outputs)) if first.dim() == 0 else torch.cat(list(outputs), dim)
    if first is None:
        return None
    if isinstance(first, Mapping):
        kind: Any = type(first)
        return kind((key, gather_on_one(device, [each[key] for each in outputs], target_device, dim)) for key in first)
    joined = (gather_on_one(device, list(parts), target_device, dim) for parts in zip(*outputs, strict=True))
    return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)


def replicate_on_one(device: RealDevice, network: Any, devices: Sequence[Any], detach: bool = False) -> list[Any]:
    """The module itself once per device: on a single device it needs no copies."""
    return [network for _ in devices]


def parallel_apply_on_one(
    device: RealDevice,
    modules: Sequence[Any],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Runs each module on its inputs, one after the other. Threads would only wait for the single device."""
    for label, others in (("inputs", inputs), ("kwargs_tup", kwargs_tup), ("devices", devices)):
        if others is not None and len(others) != len(modules):
            raise AssertionError(
                f"The number of modules {len(modules)} is not equal to the number of {label} {len(others)}"
            )
    options = kwargs_tup if kwargs_tup is not None else [{} for _ in modules]
    arguments = (given if isinstance(given, (list, tuple)) else (given,) for given in inputs)
    return [module(*given, **more) for module, given, more in zip(modules, arguments, options, strict=True)]


def data_parallel_init_on_one(
    device: RealDevice,
    self: Any,
    module: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
) -> None:
    """`DataParallel` as on a machine with one GPU. It ignores `device_ids` and runs its module on that GPU."""
    torch.nn.Module.__init__(self)
    self.dim, self.module = dim, module.to(device)
    self.device_ids, self.output_device, self.src_device_obj = [0], 0, device


def data_parallel_on_one(
    device: RealDevice,
    module: Any,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """Runs the module on all inputs in one call."""
    arguments = inputs if isinstance(inputs, tuple) else (inputs,) if inputs is not None else ()
    given, options = (scatter_on_one(device, each, [0])[0] for each in (arguments, module_kwargs or {}))
    return module.to(device)(*given, **options)
