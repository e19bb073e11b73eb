"""`torch.nn.parallel`'s helpers where all devices are one: splits, joins and replicas on the target.

torch's own refuse tensors on the CPU. `DataParallel` itself needs nothing: without several devices it runs its module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchdevice.compat import RealTensor


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """One part per device; tensors are cut along `dim`, everything else is given to each."""
    count = len(target_gpus)
    if isinstance(inputs, RealTensor):
        return tuple(inputs.chunk(count, dim))
    if isinstance(inputs, tuple) and inputs:
        parts = list(zip(*(scatter(each, target_gpus, dim) for each in inputs), strict=False))
        return [type(inputs)(*part) for part in parts] if hasattr(inputs, "_fields") else parts
    if isinstance(inputs, list) and inputs:
        return [list(part) for part in zip(*(scatter(each, target_gpus, dim) for each in inputs), strict=False)]
    if isinstance(inputs, dict) and inputs:
        columns = zip(*(scatter(each, target_gpus, dim) for each in inputs.values()), strict=False)
        return [type(inputs)(zip(inputs, part, strict=True)) for part in columns]
    return [inputs for _ in range(count)]


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """The parts joined along `dim`, in the structure that each part has."""
    first = outputs[0]
    if isinstance(first, RealTensor):
        return torch.stack(list(outputs)) if first.dim() == 0 else torch.cat(list(outputs), dim)
    if first is None:
        return None
    if isinstance(first, Mapping):
        kind: Any = type(first)
        return kind((key, gather([each[key] for each in outputs], target_device, dim)) for key in first)
    joined = (gather(list(parts), target_device, dim) for parts in zip(*outputs, strict=True))
    return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)


def replicate(network: Any, devices: Sequence[Any], detach: bool = False) -> list[Any]:
    """The module itself for each device: on one device its parameters are already where they are needed."""
    return [network for _ in devices]


def data_parallel(
    module: Any,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """The module on all inputs at once."""
    arguments = inputs if isinstance(inputs, tuple) else (inputs,) if inputs is not None else ()
    return module(*arguments, **(module_kwargs or {}))
