"""Adapters for targets that lack dtypes: `.double()`, tensors in a checkpoint; and copies that must wait there.

What becomes of such a dtype is `narrowing`; requests that carry a dtype argument are met in `adapters`.
"""

from __future__ import annotations

from typing import Any

import torch

from torchdevice.compat import RealDevice, place_storage, untyped_of
from torchdevice.patching.adapters import Function, dress
from torchdevice.patching.narrowing import narrowed, note
from torchdevice.patching.translator import Translator
from torchdevice.policy.dtypes import dtype_on


def cast(original: Function, path: str, translator: Translator) -> Function:
    """`.double()` and `.cdouble()`: the dtype is the method's name."""

    def wide(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except TypeError as refusal:
            return narrowed(refusal, original, (self, *args), kwargs, path, translator, takes_dtype=False)

    return dress(wide, original, path)


def with_dtype(original: Function, path: str, translator: Translator) -> Function:
    """A function that computes in the dtype that it is given (`softmax(dtype=…)`)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except TypeError as refusal:
            return narrowed(refusal, elsewhere, args, kwargs, path, translator)

    def elsewhere(first: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        return original(first if device is None else first.to(device), *args, **kwargs)

    return dress(call, original, path)


def waiting_copy(original: Function, path: str, translator: Translator) -> Function:
    """`Tensor.copy_`: an asynchronous copy to the target can hand out memory too early, so it waits."""

    def copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
        if non_blocking and translator.blocks and translator.in_force and self.device.type == translator.host.type:
            non_blocking = False
        return original(self, src, non_blocking)

    return dress(copy_, original, path)


def rebuilt(original: Function, path: str, translator: Translator) -> Function:
    """What `torch.load` builds tensors with: bytes of a dtype that the target lacks are read on the CPU."""

    def rebuild(storage: Any, *args: Any) -> Any:
        untyped = untyped_of(storage)
        dtype, device = storage.dtype, untyped.device
        narrow = dtype_on(device.type, dtype)
        # Not left to torch's refusal: the tensor that it makes first and fills later would itself be narrowed.
        if narrow is dtype or translator.float64 == "error" or not translator.in_force:
            return original(storage, *args)
        empty = torch.ops.aten.empty.memory_format([0], dtype=dtype, device=RealDevice("cpu"))
        here = empty.set_(place_storage(untyped, "cpu"), *args)
        note("torch.load", dtype, "cpu" if translator.float64 == "cpu" else narrow, translator)
        if translator.float64 == "cpu":
            return here
        narrowed_here = torch.ops.aten._to_copy.default(here, dtype=narrow)
        return torch.ops.aten._to_copy.default(narrowed_here, device=device)

    return dress(rebuild, original, path)
