"""Tensor subclasses and modes with `__torch_function__`, and the function object that they receive.

torch looks a method up by name before it passes it to `__torch_function__`, and would find our replacement. For a
function, torch passes its own object. A class that was defined before the activation has torch's own functions in its
tables and receives those. A class that was defined during a session has the replacements in its tables
(`HANDLED[torch.Tensor.to]`, `func is torch.ones`) and receives the replacements.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function

from torchdevice._torch.core import RealTensor, in_function_mode, innermost_function_mode
from torchdevice.translate.engine import dress

# Tensor classes without a `__torch_function__` of their own.
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})

# Whether a class was defined while no session was active (True), or during a session (False).
_older: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def notice(active: bool) -> None:
    """Called at the start and the end of a session. Unknown classes were defined in the period before the call."""
    for kind in (*_derived(RealTensor), *_derived(TorchFunctionMode)):
        _older.setdefault(kind, not active)


def _derived(kind: type) -> Iterator[type]:
    subclasses: list[type] = kind.__subclasses__()
    for each in subclasses:
        yield each
        yield from _derived(each)


def as_torch_sees_it(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The method `name` of `torch.Tensor`, for use inside its replacement.

    Only tensors dispatch to `__torch_function__`. While a mode is active, `has_torch_function` is True for any object,
    so methods of other classes (`Module.to`) must not use this.
    """

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.__class__ in PLAIN or not has_torch_function((self,)):
            return original(self, *args, **kwargs)
        shown = original if _older.get(self.__class__) else getattr(torch.Tensor, name)
        return handle_torch_function(shown, (self,), self, *args, **kwargs)

    return call


# Not empty after a mode class was defined during a session. Frequently called wrappers check this first.
modes: list[None] = []


def class_of_modes(original: Callable[..., Any], path: str, translator: Any) -> Any:
    """`TorchFunctionMode.__init_subclass__`: records that a mode class was defined during a session."""

    def __init_subclass__(cls: type, **kwargs: Any) -> None:  # noqa: N807
        super(TorchFunctionMode, cls).__init_subclass__(**kwargs)
        modes.append(None)

    return classmethod(dress(__init_subclass__, original, path))


def mode_has_a_say() -> bool:
    """Whether the innermost active mode has our replacements in its tables."""
    return bool(modes) and in_function_mode() and not _older.get(innermost_function_mode().__class__)


def shown_to(public: Callable[..., Any], original: Callable[..., Any], inputs: int) -> Callable[..., Any]:
    """The function `original`, for use inside its replacement `public`. Modes and classes receive `public`.

    They call it again, and that call is not passed to them. `inputs`: the number of leading arguments that are tensors.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        given = args[:inputs]
        if mode_has_a_say() or (given and not in_function_mode() and has_a_say(given[0])):
            return handle_torch_function(public, given, *args, **kwargs)
        return original(*args, **kwargs)

    return call


class _Decided(threading.local):
    device: Any = None


_decided = _Decided()
_waiting: list[None] = []  # one entry per pending decision, over all threads; usually empty


def has_a_say(tensor: Any) -> bool:
    """Whether a tensor's class has a `__torch_function__` and our replacements in its tables."""
    kind = tensor.__class__
    return kind not in PLAIN and has_torch_function((tensor,)) and not _older.get(kind)


def show(name: str, device: Any, tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Passes a method to `__torch_function__`. The method has no argument for the decided device.

    The class or mode calls the method again from torch's own code. The decision for the line of user code is stored for
    that call.
    """
    _decided.device = device
    _waiting.append(None)
    try:
        return handle_torch_function(getattr(torch.Tensor, name), (tensor,), tensor, *args, **kwargs)
    finally:
        _waiting.pop()
        _decided.device = None


def shown_again() -> Any:
    """The device that `show` stored for the current call; None for any other call."""
    if not _waiting or _decided.device is None:
        return None
    device, _decided.device = _decided.device, None
    return device
