"""What a program is: a function of the device, as CUDA code writes it, that returns plain data."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.semantics import programs

Function = Callable[[str], object]
NOTHING = object()


@dataclass(frozen=True)
class Program:
    name: str
    function: Function
    wanted: object  # as a machine with CUDA gives it, or NOTHING: plain torch on the CPU is the judge
    tolerance: float


def gives(wanted: object) -> Callable[[Function], Function]:
    """The value that a machine with CUDA gives, where the CPU cannot be the judge."""

    def mark(function: Function) -> Function:
        function.wanted = wanted  # type: ignore[attr-defined]
        return function

    return mark


def within(tolerance: float) -> Callable[[Function], Function]:
    """How far numbers may differ, where they are of a type with few digits."""

    def mark(function: Function) -> Function:
        function.tolerance = tolerance  # type: ignore[attr-defined]
        return function

    return mark


def every_program() -> list[Program]:
    """In the order of the files and of the lines in them."""
    return [
        Program(name, function, getattr(function, "wanted", NOTHING), getattr(function, "tolerance", 1e-4))
        for name, function in _functions()
    ]


def _functions() -> Iterator[tuple[str, Function]]:
    for found in pkgutil.iter_modules(programs.__path__):
        module: Any = importlib.import_module(f"{programs.__name__}.{found.name}")
        for name, value in vars(module).items():
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"):
                yield f"{found.name}.{name}", value
        for name, value in getattr(module, "ROWS", {}).items():
            yield f"{found.name}.{name}", value
