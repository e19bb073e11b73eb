"""How Python-side names of torch are replaced: tables of functions, classes on another base, modules not imported yet.

A virtual device stays for the life of its process, so nothing here is undone.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any


def put(owner: Any, table: Mapping[str, Any]) -> None:
    """Sets each name; modules of torch that had bound the former object follow."""
    for name, value in table.items():
        former = getattr(owner, name, None)
        setattr(owner, name, value)
        if former is not None and callable(former):
            rebind(former, value)


def rebind(former: object, value: object) -> None:
    """Early-bound copies (`from torch._C import x`) in torch's own modules point at the new object too."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == "torch" and isinstance(module, ModuleType):
            for name, held in list(vars(module).items()):
                if held is former:
                    setattr(module, name, value)


def on_base(cls: type, base: type) -> type:
    """The class again, with its own methods, on another base: torch's Python code keeps running.

    A C base class cannot be exchanged in place. `super()` finds its class in the cell `__class__`, which all methods
    share: it is pointed at the new class.
    """
    body = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    new = type(cls)(cls.__name__, (base,), body)
    for value in body.values():
        for function in (value, *(getattr(value, part, None) for part in ("__func__", "fget", "fset"))):
            if isinstance(function, FunctionType) and "__class__" in function.__code__.co_freevars:
                assert function.__closure__ is not None
                function.__closure__[function.__code__.co_freevars.index("__class__")].cell_contents = new
    rebind(cls, new)
    return new


class _AfterImport(importlib.abc.MetaPathFinder):
    """Runs a callback right after a module has been imported for the first time."""

    def __init__(self) -> None:
        self.callbacks: dict[str, Callable[[ModuleType], None]] = {}

    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        callback = self.callbacks.pop(name, None)
        if callback is None:
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                loader = spec.loader
                if loader is not None:
                    self._wrap(loader, callback)
                return spec
        return None

    @staticmethod
    def _wrap(loader: Any, callback: Callable[[ModuleType], None]) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            callback(module)

        loader.exec_module = exec_module


_after_import = _AfterImport()


def after_import(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Now if the module is loaded, else when it is: nobody pays for modules that a program never uses."""
    if name in sys.modules:
        callback(sys.modules[name])
        return
    if _after_import not in sys.meta_path:
        sys.meta_path.insert(0, _after_import)
    _after_import.callbacks[name] = callback
