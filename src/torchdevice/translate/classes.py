"""Classes that replace torch's own. Calling one translates the device and returns a *real* instance.

`torch.device`, `torch.Generator`, `torch.Stream`, `torch.Event`: `isinstance`, `issubclass`, `==`, hashing, `X | None`,
pickling and attribute access behave as with the real class.

Legacy tensor types: `torch.cuda.FloatTensor(...)`, `x.type("torch.cuda.FloatTensor")`, `set_default_tensor_type`, and
`torch.Tensor(...)`, which makes a tensor of the default type. The name of such a type contains a dtype and a device.
This module splits the name, and the policy decides the device. Adapters for functions are in `adapters`.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pkgutil import resolve_name
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.overrides import handle_torch_function

from torchdevice._torch.core import RealDevice, RealTensor, legacy_tensor_types
from torchdevice.policy.dtypes import dtype_on
from torchdevice.translate.dtypes import narrowed
from torchdevice.translate.engine import Function, dress, importable
from torchdevice.translate.subclasses import mode_has_a_say, modes
from torchdevice.translate.translator import Translator

_ABSENT = object()
_getframe = sys._getframe

Construct = Callable[[tuple[Any, ...], dict[str, Any]], Any]


class StandInType(type):
    """The metaclass. Its instances behave like the class that they replace."""

    _real: type
    _construct: Construct

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> Any:
        """A class that derives from a replaced class derives from the real one, or fails with the same error."""
        if not bases:
            return super().__new__(mcls, name, bases, namespace, **kwargs)
        real = tuple(base._real if isinstance(base, StandInType) else base for base in bases)
        return types.new_class(name, real, kwargs, lambda body: body.update(namespace))

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._construct(args, kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls._real) or type.__instancecheck__(cls, instance)  # a mock whose spec is `cls`

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, cls._real)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls._real

    def __hash__(cls) -> int:
        return hash(cls._real)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls._real, name)

    def __dir__(cls) -> list[str]:
        return dir(cls._real)

    def __repr__(cls) -> str:
        return repr(cls._real)


def stand_in(
    real: type, path: str, construct: Construct, kind: type[StandInType] = StandInType, **extra: Any
) -> StandInType:
    """A class that is like `real`, but whose calls go to `construct`. `kind` may change `isinstance`."""

    module, qualname = importable(path)
    return kind(
        real.__name__,
        (),
        {
            "__module__": module,
            "__qualname__": qualname,
            "__doc__": real.__doc__,
            "__new__": real.__new__,  # `torch.Event.__new__(cls, ...)` in a class built on the real one
            "_real": real,
            "_construct": staticmethod(construct),
            **extra,
        },
    )


def device_class(real: type, path: str, translator: Translator) -> StandInType:
    """`torch.device`. Devices are immutable, so devices with a fixed decision are shared."""
    settled = translator.settled
    places = translator.ledger.places

    class DeviceType(StandInType):
        """Making a device is fast in torch, so the frequent cases of `Translator.translate` are inlined here."""

        __qualname__ = "DeviceType"  # torch.compile cannot save objects of a class that is local to a function

        def __call__(cls, asked: Any = _ABSENT, /, *args: Any, **kwargs: Any) -> Any:
            if modes and mode_has_a_say():
                return handle_torch_function(cls, (), *(() if asked is _ABSENT else (asked, *args)), **kwargs)
            if args or kwargs or asked is _ABSENT:
                return construct(args if asked is _ABSENT else (asked, *args), kwargs)
            try:
                made = settled.get(asked)
            except TypeError:  # unhashable: not a device, torch raises an error
                return real(asked)
            if made.__class__ is real:
                return made
            frame = _getframe(1)
            known = places.get((id(frame.f_code), frame.f_lasti, path, asked))
            if known is not None and known[2] is None and not translator.suspensions:
                next(known[0])
                return known[1]
            return translated(asked, frame)

    def construct(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not translator.in_force:
            return real(*args, **kwargs)
        type_and_index = args or (kwargs.get("type"), kwargs.get("index"))
        asked = "cpu:-1" if type_and_index == ("cpu", -1) else real(*args, **kwargs)
        made = settled.get(asked)
        return made if made.__class__ is real else translated(asked, _getframe(2))

    def translated(asked: Any, frame: FrameType) -> Any:
        given = translator.translate_from(asked, path, frame, moving=True, naming=True)
        return given if given.__class__ is real else real(given)

    return stand_in(real, path, construct, DeviceType)


def generator_class(real: type, path: str, translator: Translator) -> StandInType:
    """`torch.Generator`: the policy decides its device, also if none is given."""

    def construct(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) > 1 or kwargs.keys() - {"device"} or (args and kwargs):
            return real(*args, **kwargs)  # torch raises the error
        asked = args[0] if args else kwargs.get("device")
        given = translator.translate(asked, path, depth=2)
        return real() if given is None else real(device=given)

    return stand_in(real, path, construct)


def stream_class(real: type, path: str, translator: Translator) -> StandInType:
    """`torch.Stream` and `torch.Event`: the device may be the first argument or a keyword."""

    def construct(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        asked = args[0] if args else kwargs.get("device")
        if path in translator.situation.ordered and "stream_id" not in kwargs and translator.in_force:
            options = {name: value for name, value in kwargs.items() if name != "device"}
            if asked is None or translator.redirected_type(str(asked), path, depth=2).partition(":")[0] == "cpu":
                return translator.situation.ordered[path](**options)
        if asked is not None and "stream_id" not in kwargs:
            given = translator.translate(asked, path, depth=2)
            if args:
                args = (given, *args[1:])
            else:
                kwargs["device"] = given
        elif asked is None and translator.in_force and not translator.host.accelerated:
            kwargs["device"] = RealDevice("cpu")  # without it, torch would require an accelerator
        return real(*args, **kwargs)

    return stand_in(real, path, construct)


_VIEWED = (RealTensor, torch.UntypedStorage, torch.TypedStorage)


class LegacyType(NamedTuple):
    """The parts of a legacy type: `torch.cuda.FloatTensor` is cuda, float32 and not sparse."""

    device: str | None
    dtype: torch.dtype
    sparse: bool


def read_legacy_type(name: str) -> LegacyType | None:
    """Parses the name of a legacy type; None for other names (`torch.Tensor`, dtypes)."""
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
    """A legacy type. It makes tensors of its dtype on the device that the policy decides."""
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
        if args and isinstance(args[0], _VIEWED) and args[0].device.type == wanted.type:  # makes a view, or raises
            return torch.empty(0, dtype=dtype_on(wanted.type, read.dtype), device=wanted).new(*args, **kwargs)
        made = _original(plain)(*args, **kwargs)
        return made.to(wanted)

    return stand_in(real, path, construct, _LegacyStandIn, _read=read, _translator=translator)


def _sparse(args: tuple[Any, ...], dtype: torch.dtype, device: RealDevice) -> torch.Tensor:
    """A sparse tensor from indices, values and an optional size, from a size alone, or an empty one."""
    if args and isinstance(args[0], torch.Tensor):
        indices, values, *sizes = args
        return torch.sparse_coo_tensor(indices.to(device), values.to(device, dtype), *sizes, device=device)
    size = args[0] if args and isinstance(args[0], (list, tuple)) else args
    return torch.sparse_coo_tensor(tuple(size) or (0,), dtype=dtype, device=device)


class _LegacyStandIn(StandInType):
    """`isinstance(x, torch.cuda.FloatTensor)`: True for a tensor of that dtype on the device that replaces cuda."""

    _read: LegacyType
    _translator: Translator

    def __instancecheck__(cls, instance: Any) -> bool:
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
    """`x.type(...)`: moves and casts for a legacy type, given by name or as a class. torch handles other arguments."""

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
    """`torch.set_default_tensor_type`: sets a dtype and a default device. torch handles types of the target itself.

    A CPU type undoes an earlier call. The policy then decides the device of tensors without one.
    """

    def set_default_tensor_type(t: Any) -> None:
        read = _asked_legacy(t) if translator.in_force else None
        # torch would find our class under this name.
        kind = _original(resolve_name(t) if isinstance(t, str) and read is not None else t)
        if translator.default_type is not None and read is not None:
            torch.set_default_device(None)
            translator.default_type = None
        if read is None or read.device is None:
            original(kind)
            return
        given = translator.translate(read.device, path)
        wanted = given if isinstance(given, RealDevice) else RealDevice(given)
        if wanted.type == read.device:
            original(kind)
            return
        torch.set_default_dtype(read.dtype)
        if wanted.type != "cpu" and not translator.fills:  # with `fills`, tensors go to the target anyway
            torch.set_default_device(wanted)
            translator.default_type = wanted

    return dress(set_default_tensor_type, original, path)


def default_type_constructor(original: Function, path: str, translator: Translator) -> Function:
    """`torch.Tensor(2, 3)`, `torch.Tensor([…])`: these take no device, so the request is "none given".

    torch uses its default tensor type. If that was set for a device that was redirected, the result moves to the
    default device. For a tensor or a storage as argument, the result is a view. Subclasses are not changed.
    """

    def construct(cls: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(cls, *args, **kwargs)
        if cls is not RealTensor or kwargs.get("device") is not None or (args and isinstance(args[0], _VIEWED)):
            return made
        if translator.fills:
            given = translator.translate(None, path)
        else:
            given = translator.default_type if translator.in_force else None
        return made if given is None else made.to(given)

    return dress(construct, original, path)


def legacy_paths() -> list[str]:
    """Dense CPU types, and legacy types that name a device (`torch.cuda.HalfTensor`, `torch.cuda.sparse.FloatTensor`).

    `torch.sparse.FloatTensor` is not included: it uses the device of its arguments.
    """
    return [f"{module.__name__}.{name}" for module, name in legacy_tensor_types() if module.__name__ != "torch.sparse"]
