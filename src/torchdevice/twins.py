"""The functions that torch's compiler traces instead of wrappers. A decision is a constant of the graph.

The compiler traces no other code of TorchDevice, except the packages in `packages`
(`_torch.compilers.leave_untraced`). Other code reads frames and tables of places, which the compiler cannot trace, and
would check before each call of the compiled code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchdevice._torch.compilers import constant_when_traced
from torchdevice._torch.core import RealTensor

Function = Callable[..., Any]


def constant(call: Function) -> Function:
    """Runs `call` while tracing. Its result is a constant."""

    @constant_when_traced
    def decided(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    def twin(*args: Any, **kwargs: Any) -> Any:
        return decided(*args, **kwargs)

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
        """A factory. No device means "none given", unless a generator or a result implies one."""
        decided, made = constant(self.device), self._factory()

        def twin(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("generator") is None and kwargs.get("out") is None:
                kwargs["device"] = decided(kwargs.get("device"))
            return made(kwargs.get("device"), args, kwargs)

        return twin

    def unless_tensors(self) -> Function:
        """The same, if a tensor among the arguments implies the device."""
        decided, made = constant(self.device), self._factory()

        def twin(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("device") is not None or not any_tensor(args, kwargs):
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
            dtype = kwargs.get("dtype")
            return original(*args, **(kwargs if dtype is None else {**kwargs, "dtype": dtype_there(where, dtype)}))

        return made

    def method(self) -> Function:
        """A method of tensors. It stays in the graph by its name, and is translated when the graph runs."""
        name = self.original.__name__

        def twin(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(tensor, name)(*args, **kwargs)

        return twin

    def first(self) -> Function:
        """A function whose first argument is a device."""
        original, decided = self.original, constant(self.device)

        def twin(asked: Any, *args: Any, **kwargs: Any) -> Any:
            return original(decided(asked), *args, **kwargs)

        return twin

    def module(self) -> Function:
        """A function that returns something about a device."""
        return constant(lambda device=None: self.original(device if device is None else self.device(device)))

    def state(self) -> Function:
        """A function whose result is the same for all callers."""
        return constant(self.wrapper)


def any_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether there is a tensor among the arguments."""
    return any(isinstance(value, RealTensor) for value in args) or any(
        isinstance(value, RealTensor) for value in kwargs.values()
    )
