"""Copies of torch's own Python functions and classes of a namespace that use another `torch._C`. torch is not changed.

`torch.cuda.memory_summary` is Python code that calls `torch._C._cuda_memoryStats`. A shadow copies such functions and
gives them separate globals, in which our functions come before those of the real `torch._C`. So signatures,
documentation, argument checks and error messages are torch's own in every version. Only the C functions (`natives`, see
the other modules here) are replaced. `audience` decides which callers get the copies.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from types import CellType, FunctionType
from typing import Any

import torch

from torchdevice._torch.builds import NATIVE
from torchdevice.answers.device import refusal
from torchdevice.answers.table import LEFT_ALONE

Natives = dict[str, Any]


class Facade:
    """An object with the attributes in `extra`, a dict that may still grow, and then those of `behind`."""

    __slots__ = ("__dict__", "_behind")

    def __init__(self, behind: Any, extra: dict[str, Any]) -> None:
        self._behind = behind
        self.__dict__ = extra  # not a copy; a lookup is as fast as that of a module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


class _Natives(Facade):
    """`torch._C` as the copies see it.

    A function of the namespace without a replacement raises an error, even if the build has it: in a build with CUDA,
    the real function would look for a driver.
    """

    __slots__ = ("_prefix",)

    def __init__(self, kind: str, natives: Natives) -> None:
        super().__init__(NATIVE, natives)
        object.__setattr__(self, "_prefix", f"_{kind}_")

    def __getattr__(self, name: str) -> Any:
        if name.startswith(self._prefix) and name not in LEFT_ALONE:
            return refusal(name, f"this function of torch {torch.__version__} is not supported here")
        return super().__getattr__(name)


class Shadow:
    """The copies of one namespace's functions and classes.

    - `modules`: the names of the namespace's modules.
    - `natives`: functions that take precedence over those of `torch._C`.
    - `bases`: new base classes for classes of the namespace, by the name of the class.
    - `replaced`: names with a replacement in all modules (device indices, lazy initialization).
    """

    def __init__(
        self,
        kind: str,
        modules: tuple[str, ...],
        natives: Natives,
        bases: Mapping[str, type],
        replaced: Mapping[str, Any],
        torch_extra: dict[str, Any],
    ) -> None:
        self._kind = kind
        self._bases = bases
        self._replaced = replaced
        self._modules = {name: sys.modules[name] for name in modules}
        self._copies: dict[int, Any] = {}
        self._held: list[Any] = []  # keeps originals alive, so that their ids in `_copies` stay valid
        self.globals: dict[str, dict[str, Any]] = {name: dict(vars(module)) for name, module in self._modules.items()}
        self.natives = natives
        self._natives = _Natives(kind, natives)
        facade = Facade(
            torch,
            {"_C": self._natives, kind: Facade(getattr(torch, kind), self._namespace()), **torch_extra},
        )
        for name in self._modules:
            self._fill(name, facade, natives)

    def _namespace(self) -> dict[str, Any]:
        """`torch.cuda.<name>` as the copies see it: the copied globals, with the copied submodules."""
        root = f"torch.{self._kind}"
        space = self.globals[root]
        for name, module in self._modules.items():
            parent, _, last = name.rpartition(".")
            if parent == root:
                space[last] = Facade(module, self.globals[name])
        return space

    def _fill(self, name: str, facade: Facade, natives: Natives) -> None:
        space = self.globals[name]
        for key, value in list(space.items()):
            if key in self._replaced:
                space[key] = self._replaced[key]
            elif key in natives:
                space[key] = natives[key]  # `from torch._C import _graph_pool_handle`
            elif key.startswith(f"_{self._kind}_") and getattr(NATIVE, key, None) is value:
                space[key] = getattr(self._natives, key)
            elif value is torch:
                space[key] = facade
            elif value is NATIVE:
                space[key] = self._natives
            else:
                space[key] = self.copy(value)
        if name == f"torch.{self._kind}":  # torch defines some private names only when the device is initialized
            space.update({key: value for key, value in self._replaced.items() if key.startswith("_")})

    def copy(self, value: Any) -> Any:
        """The copy of a function or class of the namespace. Other objects are returned unchanged."""
        if id(value) in self._copies:
            return self._copies[id(value)]
        made = self._copy(value)
        if made is not value:
            self._copies[id(value)] = made
            self._held.append(value)
        return made

    def _copy(self, value: Any) -> Any:
        module = getattr(value, "__module__", None)
        if not isinstance(module, str) or module not in self._modules:
            return value
        if isinstance(value, FunctionType):
            return self._function(value, {})
        if isinstance(value, type) and self._is_rebuilt(value):
            return self._class(value)
        if isinstance(value, functools._lru_cache_wrapper):
            return functools.lru_cache(maxsize=None)(self._function(value.__wrapped__, {}))
        return value

    def _is_rebuilt(self, value: type) -> bool:
        """Whether a class is rebuilt. Classes that get another base are, whatever their metaclass is.

        In a build with CUDA, classes of C++ have pybind11's metaclass. Other classes with a metaclass (legacy storages)
        work unchanged. Exceptions are not rebuilt, because programs catch the original classes.
        """
        return value.__name__ in self._bases or (type(value) is type and not issubclass(value, BaseException))

    def _function(self, function: Any, classes: Mapping[Any, CellType]) -> Any:
        """`classes` maps a class in the cell `__class__` of methods to the cell of its copy."""
        space = self.globals.get(function.__globals__.get("__name__", ""), function.__globals__)
        cells = None
        if function.__closure__ is not None:
            cells = tuple(self._cell(cell, classes) for cell in function.__closure__)
        made = FunctionType(function.__code__, space, function.__name__, function.__defaults__, cells)
        made.__kwdefaults__ = function.__kwdefaults__
        made.__dict__.update(function.__dict__)
        made.__doc__, made.__module__, made.__qualname__ = function.__doc__, function.__module__, function.__qualname__
        made.__annotations__ = function.__annotations__
        return made

    def _cell(self, cell: CellType, classes: Mapping[Any, CellType]) -> CellType:
        try:
            held = cell.cell_contents
        except ValueError:  # not filled yet
            return cell
        if isinstance(held, type) and held in classes:
            return classes[held]
        copied = self.copy(held)
        return cell if copied is held else CellType(copied)

    def _class(self, original: type) -> type:
        base = self._bases.get(original.__name__)
        bases = (base,) if base is not None else tuple(self.copy(each) for each in original.__bases__)
        cell = CellType()
        classes = {original: cell}
        body: dict[str, Any] = {}
        for name, value in vars(original).items():
            if name not in ("__dict__", "__weakref__"):
                body[name] = self._member(value, classes)
        made = type(original.__name__, bases, body)  # with the metaclass of its bases
        cell.cell_contents = made
        return made

    def _member(self, value: Any, classes: Mapping[Any, CellType]) -> Any:
        if isinstance(value, FunctionType):
            return self._function(value, classes)
        if isinstance(value, (staticmethod, classmethod)):
            return type(value)(self._function(value.__func__, classes))
        if isinstance(value, property):
            get, put, delete = (
                self._function(part, classes) if part is not None else None
                for part in (value.fget, value.fset, value.fdel)
            )
            return property(get, put, delete, value.__doc__)
        return value


def module_names(kind: str, names: Sequence[str]) -> tuple[str, ...]:
    """The namespace and its loaded submodules, which are those that the installed torch imports itself."""
    paths = (f"torch.{kind}", *(f"torch.{kind}.{name}" for name in names))
    return tuple(path for path in paths if path in sys.modules)
