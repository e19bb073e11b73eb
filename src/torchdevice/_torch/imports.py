"""Runs actions when a program imports a module of torch or of a library. Uses no private names."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.util import find_spec  # the original; `packages.finder` may replace it later
from types import ModuleType

Undo = Callable[[], object]


class _AfterImport(importlib.abc.MetaPathFinder):
    """Runs an action once, right after the first import of a module."""

    def __init__(self, module: str, action: Callable[[], object]) -> None:
        self._module = module
        self._action = action
        self._searching = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module or self._searching:
            return None
        self._searching = True
        try:
            spec = find_spec(fullname)
        finally:
            self._searching = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self.remove()
            self._action()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


def when_imported(name: str, last: str, action: Callable[[], Undo | None]) -> Undo:
    """Run `action` now if a module is loaded, else after its import. `last`: a name that the module defines late.

    A module counts as loaded if it has the name `last`. Without `last`, a module that is still being loaded counts as
    loaded. The returned function cancels the wait, or calls the undo that `action` returned.
    """
    steps = ExitStack()

    def act() -> None:
        undo = action()
        if undo is not None:
            steps.callback(undo)

    module = sys.modules.get(name)
    if module is not None and (not last or hasattr(module, last)):
        act()
    else:
        finder = _AfterImport(name, act)
        sys.meta_path.insert(0, finder)
        steps.callback(finder.remove)
    return steps.close
