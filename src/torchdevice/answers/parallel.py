"""`torch.nn.parallel`'s helpers where all devices are one: splits, joins and replicas on the target.

torch's own refuse tensors on the CPU, and look for CUDA's devices wherever they are. The first argument of each
function is the device that all devices are; the others are those of torch's function of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchdevice._torch.core import RealDevice, RealTensor


def scatter(device: RealDevice, inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """One part per device; tensors are cut along `dim`, everything else is given to each."""
    count = len(target_gpus)
    if isinstance(inputs, RealTensor):
        return tuple(inputs.to(device).chunk(count, dim))
    if isinstance(inputs, tuple) and inputs:
        parts = list(zip(*(scatter(device, each, target_gpus, dim) for each in inputs), strict=False))
        return [type(inputs)(*part) for part in parts] if hasattr(inputs, "_fields") else parts
    if isinstance(inputs, list) and inputs:
        return [list(part) for part in zip(*(scatter(device, each, target_gpus, dim) for each in inputs), strict=False)]
    if isinstance(inputs, dict) and inputs:
        columns = zip(*(scatter(device, each, target_gpus, dim) for each in inputs.values()), strict=False)
        return [type(inputs)(zip(inputs, part, strict=True)) for part in columns]
    return [inputs for _ in range(count)]


def gather(device: RealDevice, outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """The parts joined along `dim`, in the structure that each part has."""
    first = outputs[0]
    if isinstance(first, RealTensor):
        return torch.stack(list(outputs)) if first.dim() == 0 else torch.cat(list(outputs), dim)
    if first is None:
        return None
    if isinstance(first, Mapping):
        kind: Any = type(first)
        return kind((key, gather(device, [each[key] for each in outputs], target_device, dim)) for key in first)
    joined = (gather(device, list(parts), target_device, dim) for parts in zip(*outputs, strict=True))
    return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)


def replicate(device: RealDevice, network: Any, devices: Sequence[Any], detach: bool = False) -> list[Any]:
    """The module itself for each device: on one device its parameters are already where they are needed."""
    return [network for _ in devices]


def parallel_apply(
    device: RealDevice,
    modules: Sequence[Any],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Each module on its inputs, one after the other: threads would wait for the one device."""
    for label, others in (("inputs", inputs), ("kwargs_tup", kwargs_tup), ("devices", devices)):
        if others is not None and len(others) != len(modules):
            raise AssertionError(
                f"The number of modules {len(modules)} is not equal to the number of {label} {len(others)}"
            )
    options = kwargs_tup if kwargs_tup is not None else [{} for _ in modules]
    arguments = (given if isinstance(given, (list, tuple)) else (given,) for given in inputs)
    return [module(*given, **more) for module, given, more in zip(modules, arguments, options, strict=True)]


def data_parallel_init(
    device: RealDevice,
    self: Any,
    module: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
) -> None:
    """`DataParallel` as on a machine with one GPU, whatever `device_ids` say: it runs its module there."""
    torch.nn.Module.__init__(self)
    self.dim, self.module = dim, module.to(device)
    self.device_ids, self.output_device, self.src_device_obj = [0], 0, device


def data_parallel(
    device: RealDevice,
    module: Any,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """The module on all inputs at once."""
    arguments = inputs if isinstance(inputs, tuple) else (inputs,) if inputs is not None else ()
    given, options = (scatter(device, each, [0])[0] for each in (arguments, module_kwargs or {}))
    return module.to(device)(*given, **options)
