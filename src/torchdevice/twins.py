"""The functions that torch's compiler traces instead of wrappers. A decision is a constant of the graph.

The compiler traces no other code of TorchDevice, except the packages in `packages`
(`_torch.compilers.leave_untraced`). Other code reads frames and tables of places, which the compiler cannot trace, and
would check before each call of the compiled code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from torchdevice._torch.compilers import constant_when_traced
from torchdevice._torch.core import DEFAULT_DEVICES_ARE_TRACED, MODES_IN_FORCE, DeviceContext, RealTensor

Function = Callable[..., Any]


# What decisions depend on: the settings of the session. The compiler compares it before each call of compiled code.
situation = ""


def constant(call: Function) -> Function:
    """Runs `call` while tracing. Its result is a constant as long as `situation` is the same."""

    @constant_when_traced
    def decided(_situation: str, *args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    def twin(*args: Any, **kwargs: Any) -> Any:
        return decided(situation, *args, **kwargs)

    return twin


def set_of(values: Iterable[Any]) -> Function:
    """A function that returns a set of these values. The compiler accepts no set that existed before."""
    members = tuple(values)

    def twin() -> Any:
        return set(members)

    return twin


def no_context(*_: Any) -> contextlib.nullcontext[None]:
    """A context that does nothing."""
    return contextlib.nullcontext()


@dataclass(frozen=True)
class Twins:
    """The twins of one function of torch, one per kind of wrapper.

    - `original`: the function, `wrapper`: the function that replaces it.
    - `device`: the device for a requested one. `dtype`: the dtype for a requested device and dtype.
    """

    original: Function
    wrapper: Function
    device: Function
    dtype: Function

    def fresh(self) -> Function:
        """A factory. No device means "none given", unless a generator, a result or a default device implies one."""
        decided, made = constant(self.device), self._factory()

        def twin(*args: Any, **kwargs: Any) -> Any:
            implied = kwargs.get("generator") is not None or kwargs.get("out") is not None or has_default_device()
            if kwargs.get("device") is not None or not implied:
                kwargs["device"] = decided(kwargs.get("device"))
            return made(kwargs.get("device"), args, kwargs)

        return twin

    def unless_tensors(self) -> Function:
        """The same, if a tensor among the arguments implies the device."""
        decided, made = constant(self.device), self._factory()

        def twin(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("device") is not None or not (any_tensor(args, kwargs) or has_default_device()):
                kwargs["device"] = decided(kwargs.get("device"))
            return made(kwargs.get("device"), args, kwargs)

        return twin

    def like(self) -> Function:
        """A factory whose first argument implies the device."""
        decided, made = constant(self.device), self._factory()

        def twin(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("device") is not None:
                kwargs["device"] = decided(kwargs["device"])
            return made(kwargs.get("device") or (args[0].device if args else None), args, kwargs)

        return twin

    def _factory(self) -> Function:
        original, dtype_there = self.original, constant(self.dtype)

        def made(where: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if isinstance(kwargs.get("dtype"), torch.dtype):
                kwargs["dtype"] = dtype_there(where, kwargs["dtype"])
            return original(*args, **kwargs)

        return made

    def method(self) -> Function:
        """A method of tensors. It stays in the graph by its name, and is translated when the graph runs."""
        original = self.original

        def twin(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            return original(tensor, *args, **kwargs)

        return twin

    def first(self) -> Function:
        """A function whose first argument may be a device."""
        original, decided = self.original, constant(self.device)

        def twin(device: Any = None, *args: Any, **kwargs: Any) -> Any:
            return original(device if device is None else decided(device), *args, **kwargs)

        return twin

    def module(self) -> Function:
        """`torch.get_device_module`. The compiler reads the module of a type by itself."""
        original, decided = self.original, constant(self.device)
        current = constant(lambda: original().__name__.rpartition(".")[2])

        def twin(device: Any = None) -> Any:
            return original(current() if device is None else decided(device))

        return twin

    def state(self) -> Function:
        """A function whose result is the same for all callers."""
        return constant(self.wrapper)


def has_default_device() -> bool:
    """Whether `with torch.device(...)` or `torch.set_default_device(...)` supplies missing devices in compiled code.

    The compiler knows it. While it traces, torch itself has no such modes.
    """
    return DEFAULT_DEVICES_ARE_TRACED and any(isinstance(mode, DeviceContext) for mode in MODES_IN_FORCE())


def any_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether there is a tensor among the arguments."""
    return any(isinstance(value, RealTensor) for value in args) or any(
        isinstance(value, RealTensor) for value in kwargs.values()
    )
