"""Requests for a dtype that the target lacks (on mps: float64, complex128, float8).

Such a request uses a narrower dtype, stays on the CPU or raises an error: `TORCHDEVICE_FLOAT64` chooses. The code here
runs only after torch has rejected the dtype, so it adds no cost to other calls. Each place in user code gets one
warning and counts as a redirection. The module also has adapters for `.double()`, for tensors in a checkpoint, and for
copies that must block on such a target.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import torch

from torchdevice._torch.core import REBUILD_OF_BYTES, RealDevice, RealTensor, place_storage, untyped_of
from torchdevice.policy.dtypes import dtype_on, refused_dtype
from torchdevice.translate import changes
from torchdevice.translate.engine import Function, dress
from torchdevice.translate.shortage import tried_again
from torchdevice.translate.translator import Translator

# Messages of torch. The MPS backend raises TypeError for them, as for mistakes of the caller, which must propagate.
_REFUSALS = re.compile(r"Cannot convert a MPS Tensor to float64 dtype|Trying to convert (\w+) to the MPS backend")
_CPU = RealDevice("cpu")
_CONVERSIONS = frozenset({"to", "type", "double", "cdouble"})


def narrowed(
    refusal: TypeError | RuntimeError,
    original: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    path: str,
    translator: Translator,
    takes_dtype: bool = True,
) -> Any:
    """Repeats the call in a dtype that the target has, or on the CPU. Raises `refusal` if it has another cause.

    A target without free memory is such a cause: `shortage` handles it.
    """
    if isinstance(refusal, RuntimeError):
        return tried_again(refusal, original, args, kwargs, path, translator)
    refused = _REFUSALS.search(str(refusal))
    if refused is None or translator.situation.float64 == "error" or not translator.in_force:
        raise refusal
    wide = refused_dtype(refused[1] or "Double")
    if wide is None:
        raise refusal
    narrow = dtype_on(translator.host.type, wide)
    if translator.situation.float64 == "cpu":
        note(path, wide, "cpu", translator)
        return _on_cpu(original, args, kwargs, wide)
    note(path, wide, narrow, translator)
    if not takes_dtype:  # `.double()`: the method's name is the dtype
        return torch.ops.aten._to_copy.default(args[0], dtype=narrow) if args[0].dtype is not narrow else args[0]
    type_on = translator.host.type
    again = tuple(dtype_on(type_on, a) if isinstance(a, torch.dtype) else a for a in args)
    options = {k: dtype_on(type_on, v) if isinstance(v, torch.dtype) else v for k, v in kwargs.items()}
    if again == args and options.get("dtype") is kwargs.get("dtype"):
        if len(args) > 2 and args[2] is None:  # `Module.to` calls `tensor.to(device, dtype, …)` by position
            again = (*args[:2], narrow, *args[3:])
        else:
            options["dtype"] = narrow
    return original(*again, **options)


def _on_cpu(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wide: torch.dtype) -> Any:
    """The call with its dtype, but on the CPU: a conversion of a tensor, or a factory."""
    if args and isinstance(args[0], RealTensor) and getattr(original, "__name__", "") in _CONVERSIONS:
        return torch.ops.aten._to_copy.default(args[0], dtype=wide, device=_CPU)
    return original(*args, **{**kwargs, "device": _CPU})


def traced_dtype(device: Any, dtype: torch.dtype, path: str, translator: Translator) -> torch.dtype:
    """The dtype for code under torch's compiler: tracing does not call the target, so torch raises no error there."""
    if device is None or translator.situation.float64 != "downcast" or not translator.in_force:
        return dtype
    narrow = dtype_on(RealDevice(device).type, dtype)
    if narrow is not dtype:
        note(path, dtype, narrow, translator)
    return narrow


def note(path: str, wide: Any, given: Any, translator: Translator) -> None:
    """Count the place, and warn about it once."""
    asked, became = str(wide).removeprefix("torch."), str(given).removeprefix("torch.")
    reason = f"{translator.host.type} has no {asked} (TORCHDEVICE_FLOAT64={translator.situation.float64})"
    message = (
        f"{path} requested {asked}; {reason}, so it became {became}.\n"
        "Hint: TORCHDEVICE_FLOAT64=cpu keeps such tensors on the CPU, =error raises an error"
    )
    changes.tell(translator, path, asked, became, reason, message)


def blocking(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a conversion, changed so that it blocks.

    An asynchronous copy to MPS can expose memory before the copy is finished.
    """
    if kwargs.get("non_blocking"):
        kwargs = {**kwargs, "non_blocking": False}
    for position, value in enumerate(args):
        if isinstance(value, bool):  # `non_blocking` is the first bool in every form of the call
            args = (*args[:position], False, *args[position + 1 :])
            break
    return args, kwargs


def cast(original: Function, path: str, translator: Translator) -> Function:
    """`.double()` and `.cdouble()`: the dtype is the method's name."""

    def wide(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except TypeError as refusal:
            return narrowed(refusal, original, (self, *args), kwargs, path, translator, takes_dtype=False)

    return dress(wide, original, path)


def with_dtype(original: Function, path: str, translator: Translator) -> Function:
    """A function that computes in a given dtype (`softmax(dtype=…)`)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except TypeError as refusal:
            return narrowed(refusal, elsewhere, args, kwargs, path, translator)

    def elsewhere(first: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        return original(first if device is None else first.to(device), *args, **kwargs)

    return dress(call, original, path)


def power_in_place(original: Function, path: str, translator: Translator) -> Function:
    """`Tensor.float_power_`: torch requires the widest dtype. Here that is the narrower dtype of the tensor."""

    def float_power_(self: Any, exponent: Any) -> Any:
        wide = {torch.float32: torch.float64, torch.complex64: torch.complex128}.get(self.dtype)
        narrow = wide is not None and translator.in_force and self.device.type == translator.host.type
        if not narrow or translator.situation.float64 != "downcast":
            return original(self, exponent)
        note(path, wide, self.dtype, translator)
        return self.pow_(exponent)

    return dress(float_power_, original, path)


def waiting_copy(original: Function, path: str, translator: Translator) -> Function:
    """`Tensor.copy_`: blocks, because an asynchronous copy to the target can expose memory before it is finished."""

    def copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
        if non_blocking and translator.blocks and translator.in_force and self.device.type == translator.host.type:
            non_blocking = False
        return original(self, src, non_blocking)

    return dress(copy_, original, path)


def rebuilt(original: Function, path: str, translator: Translator) -> Function:
    """The function with which `torch.load` makes tensors. A dtype that the target lacks is read on the CPU."""

    def rebuild(storage: Any, *place: Any) -> Any:
        if not _reads_on_the_cpu(storage, storage.dtype, translator):
            return original(storage, *place)
        return _read_on_the_cpu(storage, storage.dtype, place, translator)

    return dress(rebuild, original, path)


def rebuilt_of_bytes(original: Function, path: str, translator: Translator) -> Function:
    """The same for dtypes that storages do not record, such as float8."""

    def rebuild(
        storage: Any, offset: int, size: Any, stride: Any, grad: bool, hooks: Any, dtype: Any, metadata: Any = None
    ) -> Any:
        if not _reads_on_the_cpu(storage, dtype, translator):
            return original(storage, offset, size, stride, grad, hooks, dtype, metadata)
        return _read_on_the_cpu(storage, dtype, (offset, size, stride), translator).requires_grad_(grad)

    return dress(rebuild, original, path)


def allowed_by_name(original: Function, path: str, translator: Translator) -> Function:
    """The functions that `torch.load(weights_only=True)` calls by name. torch caches those of the first load."""
    ours: dict[str, Any] = {}

    def allowed() -> dict[str, Any]:
        if not ours:
            ours.update(original())
            ours[REBUILD_OF_BYTES] = rebuilt_of_bytes(
                inspect.unwrap(ours[REBUILD_OF_BYTES]), REBUILD_OF_BYTES, translator
            )
        return ours

    return dress(allowed, original, path)


def _reads_on_the_cpu(storage: Any, dtype: torch.dtype, translator: Translator) -> bool:
    """Whether to read on the CPU.

    torch's own error would come too late: torch first makes an empty tensor and fills it later, and the empty tensor
    would already be narrowed.
    """
    lacked = dtype_on(untyped_of(storage).device.type, dtype) is not dtype
    return lacked and translator.situation.float64 != "error" and translator.in_force


def _read_on_the_cpu(storage: Any, dtype: torch.dtype, place: tuple[Any, ...], translator: Translator) -> torch.Tensor:
    untyped = untyped_of(storage)
    narrow = dtype_on(untyped.device.type, dtype)
    empty = torch.ops.aten.empty.memory_format([0], dtype=dtype, device=_CPU)
    here = empty.set_(place_storage(untyped, "cpu"), *place)
    note("torch.load", dtype, "cpu" if translator.situation.float64 == "cpu" else narrow, translator)
    if translator.situation.float64 == "cpu":
        return here
    narrowed_here = torch.ops.aten._to_copy.default(here, dtype=narrow)
    return torch.ops.aten._to_copy.default(narrowed_here, device=untyped.device)
