"""Legacy tensor types: `torch.cuda.FloatTensor(...)`, `x.type("torch.cuda.FloatTensor")`, `set_default_tensor_type`,
and `torch.Tensor(...)`, which makes a tensor of the default type.

A legacy type is a dtype and a device in one name; here it is taken apart and the device goes through the policy.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any, NamedTuple

import torch

from torchdevice.compat import RealDevice, RealTensor, legacy_tensor_types
from torchdevice.patching.adapters import Function, dress
from torchdevice.patching.narrowing import narrowed
from torchdevice.patching.standins import StandInType, stand_in
from torchdevice.patching.translator import Translator

_VIEWED = (RealTensor, torch.UntypedStorage, torch.TypedStorage)


class LegacyType(NamedTuple):
    """What a legacy type says: `torch.cuda.FloatTensor` is cuda and float32 (and not sparse)."""

    device: str | None
    dtype: torch.dtype
    sparse: bool


def read_legacy_type(name: str) -> LegacyType | None:
    """Take a legacy type's name apart; None if it is not one (`torch.Tensor` and dtypes are not)."""
    parts = name.split(".")
    if parts[0] != "torch" or not parts[-1].endswith("Tensor") or parts[-1] == "Tensor":
        return None
    plain = getattr(torch, parts[-1], None)
    dtype = getattr(plain, "dtype", None)
    middle = [part for part in parts[1:-1] if part != "sparse"]
    if not isinstance(dtype, torch.dtype) or len(middle) > 1:
        return None
    return LegacyType(middle[0] if middle else None, dtype, "sparse" in parts)


def legacy_class(real: Any, path: str, translator: Translator) -> StandInType:
    """A legacy type: what it makes has its dtype, on the device that the policy picks for its name."""
    read = read_legacy_type(path)
    assert read is not None, path
    plain = getattr(torch, real.__name__)

    def construct(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not translator.in_force:
            return real(*args, **kwargs)
        given = translator.translate(read.device, path, depth=2)
        wanted = RealDevice(given if given is not None else "cpu")
        if wanted.type == (read.device or "cpu"):
            return real(*args, **kwargs)
        if read.sparse:
            return _sparse(args, read.dtype, wanted)
        made = _original(plain)(*args, **kwargs)
        return made.to(wanted)

    return stand_in(real, path, construct, _LegacyStandIn, _read=read, _translator=translator)


def _sparse(args: tuple[Any, ...], dtype: torch.dtype, device: RealDevice) -> torch.Tensor:
    """What a sparse type makes: of indices, values and perhaps a size, of a size alone, or of nothing."""
    if args and isinstance(args[0], torch.Tensor):
        indices, values, *sizes = args
        return torch.sparse_coo_tensor(indices.to(device), values.to(device, dtype), *sizes, device=device)
    size = args[0] if args and isinstance(args[0], (list, tuple)) else args
    return torch.sparse_coo_tensor(tuple(size) or (0,), dtype=dtype, device=device)


class _LegacyStandIn(StandInType):
    """`isinstance(x, torch.cuda.FloatTensor)`: a tensor of that dtype on the device that the name stands for."""

    _read: LegacyType
    _translator: Translator

    def __instancecheck__(cls, instance: Any) -> bool:  # noqa: N805 - a metaclass
        if isinstance(instance, cls._real):
            return True
        if not isinstance(instance, torch.Tensor) or instance.dtype is not cls._read.dtype:
            return False
        if instance.is_sparse is not cls._read.sparse:
            return False
        given = cls._translator.redirected_type(cls._read.device or "cpu", f"torch.{cls.__name__}")
        return bool(instance.device.type == given)


def _original(kind: Any) -> Any:
    return kind._real if isinstance(kind, StandInType) else kind


def tensor_type(original: Function, path: str, translator: Translator) -> Function:
    """`x.type(...)`: a legacy type by name or as a class moves and casts; anything else is torch's business."""

    def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = args[0] if args else kwargs.get("dtype")
        read = _asked_legacy(asked) if translator.in_force else None
        if read is None or read.sparse is not self.is_sparse:
            try:
                return original(self, *args, **kwargs)
            except TypeError as refusal:
                return narrowed(refusal, original, (self, *args), kwargs, path, translator)
        given = translator.translate(read.device or "cpu", path)
        wanted = given if isinstance(given, RealDevice) else RealDevice(given)
        non_blocking = kwargs.get("non_blocking", args[1] if len(args) > 1 else False)
        return self.to(device=wanted, dtype=read.dtype, non_blocking=non_blocking)

    return dress(convert, original, path)


def _asked_legacy(asked: Any) -> LegacyType | None:
    if isinstance(asked, str):
        return read_legacy_type(asked)
    if isinstance(asked, type) and asked.__name__.endswith("Tensor"):
        return read_legacy_type(f"{asked.__module__}.{asked.__name__}")
    return None


def default_tensor_type(original: Function, path: str, translator: Translator) -> Function:
    """`torch.set_default_tensor_type`: a type of the target is torch's business; else a dtype and a default device.

    A type of the CPU takes back what an earlier call has set; tensors without a device go where the policy says.
    """
    moved = False

    def set_default_tensor_type(t: Any) -> None:
        nonlocal moved
        read = _asked_legacy(t) if translator.in_force else None
        # torch would find the stand-in under the name.
        kind = _original(resolve_name(t) if isinstance(t, str) and read is not None else t)
        if moved and read is not None:
            torch.set_default_device(None)
            moved = False
        if read is None or read.device is None:
            original(kind)
            return
        given = translator.translate(read.device, path)
        wanted = given if isinstance(given, RealDevice) else RealDevice(given)
        if wanted.type == read.device:
            original(kind)
            return
        torch.set_default_dtype(read.dtype)
        if wanted.type != "cpu" and not translator.fills:  # where they go anyway
            torch.set_default_device(wanted)
            moved = True

    return dress(set_default_tensor_type, original, path)


def default_type_constructor(original: Function, path: str, translator: Translator) -> Function:
    """`torch.Tensor(2, 3)`, `torch.Tensor([…])`: no device can be given, so it is "none given".

    Of a tensor or a storage it is a view; a class of somebody's own knows what it does.
    """

    def construct(cls: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(cls, *args, **kwargs)
        if cls is not RealTensor or kwargs.get("device") is not None or (args and isinstance(args[0], _VIEWED)):
            return made
        given = translator.translate(None, path)
        return made if given is None else made.to(given)

    return dress(construct, original, path)


def legacy_paths() -> list[str]:
    """The legacy types that name a device (`torch.cuda.HalfTensor`, `torch.cuda.sparse.FloatTensor`) and dense ones of
    the CPU; `torch.sparse.FloatTensor` goes by its arguments."""
    return [f"{module.__name__}.{name}" for module, name in legacy_tensor_types() if module.__name__ != "torch.sparse"]
