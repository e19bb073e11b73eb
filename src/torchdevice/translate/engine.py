"""Applies replacements, undoes them, and copies the metadata of an original to its wrapper. Does not import torch."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

Function = Callable[..., Any]

_ABSENT = object()


@dataclass(frozen=True)
class Replacement:
    """Sets `owner.name` to `value`. `path` is the public name."""

    path: str
    owner: Any
    name: str
    value: Any


@dataclass
class Applied:
    """The applied replacements, and how to undo them."""

    _undo: list[tuple[Replacement, Any]] = field(default_factory=list)
    originals: dict[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """The public names that are replaced."""
        return tuple(replacement.path for replacement, _ in self._undo)

    def functions(self) -> Iterator[tuple[Any, Any]]:
        """Pairs of (original, replacement) for functions and classes in modules, which user code calls."""
        for replacement, before in self._undo:
            if isinstance(replacement.owner, ModuleType) and callable(before) and before is not replacement.value:
                yield before, replacement.value

    def undo(self) -> tuple[str, ...]:
        """Restore everything that is still ours, last first. Returns the paths that other code has replaced since."""
        lost = []
        while self._undo:
            replacement, before = self._undo.pop()
            if vars(replacement.owner).get(replacement.name, _ABSENT) is not replacement.value:
                lost.append(replacement.path)
            elif before is _ABSENT:
                delattr(replacement.owner, replacement.name)
            else:
                setattr(replacement.owner, replacement.name, before)
        return tuple(lost)


def apply(replacements: Iterable[Replacement]) -> Applied:
    """Apply all replacements, or none: an error undoes those that were applied."""
    applied = Applied()
    try:
        for replacement in replacements:
            # Read the owner's own entry, not with getattr: an inherited attribute is restored by deleting ours, and a
            # staticmethod is restored as a staticmethod.
            before = vars(replacement.owner).get(replacement.name, _ABSENT)
            found = getattr(replacement.owner, replacement.name, None)
            setattr(replacement.owner, replacement.name, replacement.value)
            applied._undo.append((replacement, before))
            applied.originals.setdefault(replacement.path, found)  # a name that is replaced twice has one original
    except BaseException:
        applied.undo()
        raise
    return applied


def dress(wrapper: Function, original: Function, path: str) -> Function:
    """Gives a wrapper the original's name, documentation and signature, and a name under which pickle finds it."""
    wrapper.__name__ = original.__name__
    wrapper.__doc__ = original.__doc__
    wrapper.__dict__.update(getattr(original, "__dict__", {}))
    if inspect.isfunction(original):
        wrapper.__module__, wrapper.__qualname__ = original.__module__, original.__qualname__
    else:  # a C function has the name of a C class, which cannot be imported
        wrapper.__module__, wrapper.__qualname__ = importable(path)
    if hasattr(original, "__objclass__"):  # torch's compiler recognises methods of tensors by it
        wrapper.__objclass__ = original.__objclass__  # type: ignore[attr-defined]
    wrapper.__wrapped__ = original  # type: ignore[attr-defined]
    return wrapper


def importable(path: str) -> tuple[str, str]:
    """The module and the qualified name under which pickle finds the object at `path`."""
    module, _, name = path.rpartition(".")
    inner = name
    while module not in sys.modules:
        module, _, outer = module.rpartition(".")
        inner = f"{outer}.{inner}"
    return module, inner


def parameter_names(function: Function) -> frozenset[str]:
    """The parameter names of a Python function; empty for a function in C. `inspect.signature` is 20 times slower."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code is not None else ())
