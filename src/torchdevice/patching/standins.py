"""Classes that stand in for torch's own: calling one translates and returns a *real* instance.

`isinstance`, `issubclass`, `==`, hashing, `X | None`, pickling and attribute access are those of the real class.
Adapters for functions live in `adapters`.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from types import FrameType
from typing import Any

from torchdevice.compat import RealDevice
from torchdevice.patching.adapters import importable
from torchdevice.patching.translator import Translator
from torchdevice.policy.resolve import Caller

_ABSENT = object()
_getframe = sys._getframe

Construct = Callable[[tuple[Any, ...], dict[str, Any]], Any]


class StandInType(type):
    """The metaclass: its instances behave as the class that they stand in for."""

    _real: type
    _construct: Construct

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> Any:
        """A class statement that derives from a stand-in derives from the real class (or fails as it would there)."""
        if not bases:
            return super().__new__(mcls, name, bases, namespace, **kwargs)
        real = tuple(base._real if isinstance(base, StandInType) else base for base in bases)
        return types.new_class(name, real, kwargs, lambda body: body.update(namespace))

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._construct(args, kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls._real) or type.__instancecheck__(cls, instance)  # a mock with our class as spec

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
    """A class that is called through `construct` and otherwise is `real`; `kind` may refine what `isinstance` means."""

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
    """`torch.device`. Devices cannot change, so those that are decided once are shared."""
    settled = translator.settled
    places = translator.places

    class DeviceType(StandInType):
        """Making a device costs torch little, so the known cases of `Translator.translate` are inlined here."""

        def __call__(cls, asked: Any = _ABSENT, /, *args: Any, **kwargs: Any) -> Any:
            if args or kwargs or asked is _ABSENT:
                return construct(args if asked is _ABSENT else (asked, *args), kwargs)
            try:
                made = settled.get(asked)
            except TypeError:  # unhashable: no device, torch says so
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
        return translated(asked, _getframe(2))

    def translated(asked: Any, frame: FrameType) -> Any:
        role = translator.roles[frame.f_code.co_filename]
        if role.caller is Caller.TORCH and not role.relays:
            # Torch names devices to compare with (`device == torch.device("mps:0")`); what it makes there is
            # translated when it is made.
            return real(asked)
        given = translator.translate_from(asked, path, frame, moving=True)
        return given if given.__class__ is real else real(given)

    return stand_in(real, path, construct, DeviceType)


def generator_class(real: type, path: str, translator: Translator) -> StandInType:
    """`torch.Generator`: follows the policy, also when no device is given."""

    def construct(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) > 1 or kwargs.keys() - {"device"} or (args and kwargs):
            return real(*args, **kwargs)  # torch says what is wrong
        asked = args[0] if args else kwargs.get("device")
        given = translator.translate(asked, path, depth=2)
        return real() if given is None else real(device=given)

    return stand_in(real, path, construct)


def stream_class(real: type, path: str, translator: Translator) -> StandInType:
    """`torch.Stream` and `torch.Event`: the device may be the first argument or a keyword."""

    def construct(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        asked = args[0] if args else kwargs.get("device")
        if path in translator.ordered and "stream_id" not in kwargs and translator.in_force:
            options = {name: value for name, value in kwargs.items() if name != "device"}
            if asked is None or translator.redirected_type(str(asked), path, depth=2).partition(":")[0] == "cpu":
                return translator.ordered[path](**options)
        if asked is not None and "stream_id" not in kwargs:
            given = translator.translate(asked, path, depth=2)
            if args:
                args = (given, *args[1:])
            else:
                kwargs["device"] = given
        elif asked is None and translator.in_force and not translator.host.accelerated:
            kwargs["device"] = RealDevice("cpu")  # torch would look for an accelerator and find none
        return real(*args, **kwargs)

    return stand_in(real, path, construct)
