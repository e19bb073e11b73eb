"""Classes and modes with a `__torch_function__` of their own, and which function object they are shown.

torch looks a method up by name to hand it over, and would find our replacement; a function it hands over as its own,
without ours. A class that is older than the activation has torch's own functions in its tables and is shown those; one
that was made while we are active found the replacements when it filled its tables (`HANDLED[torch.Tensor.to]`,
`func is torch.ones`), and is shown what it found.
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

# Tensors that no class of somebody's own can have a say about.
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})

# Whether a class is older than the activation that it met first.
_older: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def notice(active: bool) -> None:
    """At the start and at the end of an activation: classes that nobody knows yet were made in the time before it."""
    for kind in (*_derived(RealTensor), *_derived(TorchFunctionMode)):
        _older.setdefault(kind, not active)


def _derived(kind: type) -> Iterator[type]:
    subclasses: list[type] = kind.__subclasses__()
    for each in subclasses:
        yield each
        yield from _derived(each)


def as_torch_sees_it(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The method `name` of `torch.Tensor` for use inside a replacement of it.

    Only tensors dispatch to `__torch_function__`. While a mode is on, `has_torch_function` is true for any object, so
    methods of other classes (`Module.to`) must not come here.
    """

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.__class__ in PLAIN or not has_torch_function((self,)):
            return original(self, *args, **kwargs)
        shown = original if _older.get(self.__class__) else getattr(torch.Tensor, name)
        return handle_torch_function(shown, (self,), self, *args, **kwargs)

    return call


# Not empty once a class of modes was made while we were active: wrappers that are called often look here first.
modes: list[None] = []


def class_of_modes(original: Callable[..., Any], path: str, translator: Any) -> Any:
    """`TorchFunctionMode.__init_subclass__`: from now on there is a mode that can have a say."""

    def __init_subclass__(cls: type, **kwargs: Any) -> None:  # noqa: N807
        super(TorchFunctionMode, cls).__init_subclass__(**kwargs)
        modes.append(None)

    return classmethod(dress(__init_subclass__, original, path))


def mode_has_a_say() -> bool:
    """Whether the mode that sees the next call first holds our replacements in its tables."""
    return bool(modes) and in_function_mode() and not _older.get(innermost_function_mode().__class__)


def shown_to(public: Callable[..., Any], original: Callable[..., Any], inputs: int) -> Callable[..., Any]:
    """The function `original` for use inside `public`, its replacement: modes and classes are shown `public`.

    They call it again, and then have no say. `inputs`: how many of the first arguments are tensors.
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
_waiting: list[None] = []  # one per decision that waits, in all threads together: mostly none


def has_a_say(tensor: Any) -> bool:
    """Whether a tensor's class has a `__torch_function__` and holds our replacements in its tables."""
    kind = tensor.__class__
    return kind not in PLAIN and has_torch_function((tensor,)) and not _older.get(kind)


def show(name: str, device: Any, tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Show a class or a mode the method that was called, which has no argument for the device that was decided.

    It calls the method again, from torch's own code. What was decided for the user's line waits there.
    """
    _decided.device = device
    _waiting.append(None)
    try:
        return handle_torch_function(getattr(torch.Tensor, name), (tensor,), tensor, *args, **kwargs)
    finally:
        _waiting.pop()
        _decided.device = None


def shown_again() -> Any:
    """The device that was decided before the method that runs now was shown; None for any other call."""
    if not _waiting or _decided.device is None:
        return None
    device, _decided.device = _decided.device, None
    return device
