"""Adapters for results and receivers: functions that make a tensor without taking a device, and methods of a tensor
that mind where it is. Adapters for device arguments are `adapters`."""

from __future__ import annotations

import inspect
from typing import Any

from torchdevice.compat import RealDevice, RealTensor
from torchdevice.patching.adapters import PINNABLE, Function, arriving, can_pin, dress
from torchdevice.patching.translator import Translator
from torchdevice.policy.resolve import Caller


def result_follows(original: Function, path: str, translator: Translator) -> Function:
    """A function that takes no device and makes a CPU tensor (`from_numpy`): the result goes where "none" goes."""

    def make(*args: Any, **kwargs: Any) -> Any:
        made = original(*args, **kwargs)
        given = translator.translate(None, path)
        return made if given is None else arriving(made, given, path, translator)

    return dress(make, original, path)


def numpy_from_anywhere(original: Function, path: str, translator: Translator, to: Function) -> Function:
    """`.numpy()` on a tensor that a redirected `.cpu()` left on the accelerator: the array of a copy."""

    def numpy(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_cpu or not translator.in_force:
            return original(self, *args, **kwargs)
        return original(to(self, RealDevice("cpu")), *args, **kwargs)

    return dress(numpy, original, path)


def cpu_argument(original: Function, path: str, translator: Translator, name: str) -> Function:
    """A function that insists on a CPU tensor for one argument: it gets one."""
    try:
        names = list(inspect.signature(original).parameters)
    except ValueError:  # a C function: the argument in question is its second
        names = ["self", name]
    position = names.index(name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if translator.in_force:
            if len(args) > position:
                args = (*args[:position], _on_cpu(args[position]), *args[position + 1 :])
            elif name in kwargs:
                kwargs[name] = _on_cpu(kwargs[name])
        return original(*args, **kwargs)

    return dress(call, original, path)


def _on_cpu(value: Any) -> Any:
    return value.to(RealDevice("cpu")) if isinstance(value, RealTensor) else value


def pin_memory(original: Function, path: str, translator: Translator) -> Function:
    """`.pin_memory()`: nothing to do where the target cannot use it, or where the tensor is there already."""

    def pin(self: Any, *args: Any, **kwargs: Any) -> Any:
        if translator.in_force and not can_pin(translator, self.device):
            return self
        return original(self, *args, **kwargs)

    return dress(pin, original, path)


def record_stream(original: Function, path: str, translator: Translator) -> Function:
    """`.record_stream(s)`: a hint to a caching allocator; a device without one has no use for it."""

    def record(self: Any, stream: Any) -> None:
        if self.device.type in PINNABLE or not translator.in_force:
            original(self, stream)

    return dress(record, original, path)


def get_device(original: Function, path: str, translator: Translator) -> Function:
    """`.get_device()`: user code wants an ordinal that it can pass on; the CPU stands for device 0 of the target."""

    def ordinal(self: Any) -> int:
        index: int = original(self)
        if index >= 0 or not translator.in_force or translator.host.accelerated or self.device.type != "cpu":
            return index
        return 0 if translator.caller() is Caller.USER else index

    return dress(ordinal, original, path)
