"""Apply replacements and undo them, and dress a wrapper as its original. Knows nothing of torch."""

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
    """Put `value` at `owner.name`; `path` is how people call that place."""

    path: str
    owner: Any
    name: str
    value: Any


@dataclass
class Applied:
    """What is in place, and the way back."""

    _undo: list[tuple[Replacement, Any]] = field(default_factory=list)
    originals: dict[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """The places that are replaced."""
        return tuple(replacement.path for replacement, _ in self._undo)

    def functions(self) -> Iterator[tuple[Any, Any]]:
        """Pairs of (original, replacement) of what modules hold and user code calls: functions and classes."""
        for replacement, before in self._undo:
            if isinstance(replacement.owner, ModuleType) and callable(before) and before is not replacement.value:
                yield before, replacement.value

    def undo(self) -> tuple[str, ...]:
        """Restore everything that is still ours, last first; the paths that somebody else has replaced since."""
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
    """Put all replacements in place, or none: an error on the way takes back what was done."""
    applied = Applied()
    try:
        for replacement in replacements:
            # The owner's own entry, not what getattr finds: an inherited attribute is restored by deleting ours,
            # and a staticmethod comes back as the staticmethod that it was.
            before = vars(replacement.owner).get(replacement.name, _ABSENT)
            found = getattr(replacement.owner, replacement.name, None)
            setattr(replacement.owner, replacement.name, replacement.value)
            applied._undo.append((replacement, before))
            applied.originals.setdefault(replacement.path, found)  # a place replaced twice has one original
    except BaseException:
        applied.undo()
        raise
    return applied


def dress(wrapper: Function, original: Function, path: str) -> Function:
    """Give a wrapper the original's name, documentation, signature and a place from which it can be unpickled."""
    wrapper.__name__ = original.__name__
    wrapper.__doc__ = original.__doc__
    wrapper.__dict__.update(getattr(original, "__dict__", {}))
    if inspect.isfunction(original):
        wrapper.__module__, wrapper.__qualname__ = original.__module__, original.__qualname__
    else:  # C functions carry the name of the C class that holds them, which cannot be looked up
        wrapper.__module__, wrapper.__qualname__ = importable(path)
    wrapper.__wrapped__ = original  # type: ignore[attr-defined]
    return wrapper


def importable(path: str) -> tuple[str, str]:
    """The module and the qualified name under which pickle finds what stands at `path`."""
    module, _, name = path.rpartition(".")
    inner = name
    while module not in sys.modules:
        module, _, outer = module.rpartition(".")
        inner = f"{outer}.{inner}"
    return module, inner


def parameter_names(function: Function) -> frozenset[str]:
    """The names of a Python function's parameters; none of a function in C. A signature takes twenty times as long."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code is not None else ())
