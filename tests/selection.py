"""Which tests start processes, read off their code, and in which order tests are run.

A test starts processes if its code, a fixture of its, or a helper under tests/ or tools/ that these name, uses a module
that does. What cannot be seen so (a process that a library starts) is marked by hand: `make check` fails where a
mark is missing.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import pytest

LEFT_OUT = "not processes"
STARTING_NAMES = {"subprocess", "multiprocessing", "fork"}
STARTING_EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}


def starts_processes(item: pytest.Function) -> bool:
    """Whether the code of this test says so."""
    fixtures = [each.func for found in item._fixtureinfo.name2fixturedefs.values() for each in found]
    seen: set[object] = set()
    return any(_starts(function, seen) for function in (item.function, *fixtures))


def rank(item: pytest.Item) -> int:
    """Long tests first and those without processes last: then two workers end at about the same time."""
    if item.get_closest_marker("long"):
        return 0
    return 1 if item.get_closest_marker("processes") else 2


class Refusal:
    """Where tests that start processes are left out, one that starts some all the same fails."""

    def __init__(self) -> None:
        self._running: str | None = None
        sys.addaudithook(self._hear)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._running = item.nodeid
        try:
            return (yield)
        finally:
            self._running = None

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        words = arguments[1] if event == "subprocess.Popen" else ()
        if isinstance(words, (list, tuple)) and [*words[1:]] == ["--version"]:
            return  # the compiler's version is part of the name of a built library, so looking for one starts it
        if event in STARTING_EVENTS and self._running:
            raise pytest.fail.Exception(f"{self._running} starts a process ({event}): mark it `processes`")


def _starts(value: object, seen: set[object]) -> bool:
    if isinstance(value, type):
        if value in seen:  # classes may name each other: an autograd function and its backward
            return False
        seen.add(value)
        return any(_starts(each, seen) for each in vars(value).values())
    wrapped = getattr(value, "__wrapped__", None)
    if not isinstance(value, types.FunctionType):
        return wrapped is not None and _starts(wrapped, seen)
    if value.__code__ in seen:
        return False
    seen.add(value.__code__)
    names = set(_names(value.__code__))
    if names & STARTING_NAMES:
        return True
    named = [value.__globals__[name] for name in names if name in value.__globals__]
    named += [
        vars(each)[name]
        for each in named
        if isinstance(each, types.ModuleType) and _is_ours(each)
        for name in names & vars(each).keys()
    ]
    named += [cell.cell_contents for cell in value.__closure__ or ()]
    return any(_starts(each, seen) for each in (wrapped, *named) if _is_ours(each))


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_ours(value: object) -> bool:
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    return isinstance(module, str) and module.startswith(("tests.", "tools."))
