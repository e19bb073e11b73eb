"""Makes `import flash_attn` find the stand-in while a session is active.

The finder is the last in `sys.meta_path`, so installed packages are found first. It finds stand-ins only for required
imports (`choices`). `importlib.util.find_spec` and `importlib.metadata` do not find the package, so that libraries that
check before they import make the same choice as before.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

from torchdevice._torch import core
from torchdevice._torch.imports import Undo, when_imported
from torchdevice.errors import explain_error
from torchdevice.packages.choices import is_choice
from torchdevice.packages.libraries import CHECKS, Check, say_yes
from torchdevice.packages.table import MODULES, PACKAGES, Module
from torchdevice.translate.engine import Replacement, apply

Spec = importlib.machinery.ModuleSpec


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and creates the modules of `table`. A module is created once per process."""

    def __init__(self) -> None:
        self._made: dict[str, ModuleType] = {}
        self.hidden: set[str] = set()  # installed packages that only required imports find

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> Spec | None:
        """A spec for a required import, or for a module of a package whose stand-in is loaded."""
        if fullname not in MODULES:
            return None
        top = fullname.partition(".")[0]
        wanted = not is_choice(sys._getframe(1)) if top == fullname else self.stands_in(top)
        return Spec(fullname, self, is_package=MODULES[fullname].is_package) if wanted else None

    def create_module(self, spec: Spec) -> ModuleType | None:
        """The module that was created before, if any."""
        return self._made.get(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Adds the names of the row to a new module."""
        if module.__name__ not in self._made:
            vars(module).update(_contents(module.__name__, MODULES[module.__name__]))
            self._made[module.__name__] = module

    def stands_in(self, name: str) -> bool:
        """Whether a loaded module of this name is a stand-in."""
        return name in self._made and sys.modules.get(name) is self._made[name]

    def unload(self) -> None:
        """Removes the stand-ins from `sys.modules`. References to a module stay valid, because it only needs torch."""
        for name in self._made:
            if self.stands_in(name):
                del sys.modules[name]


def _contents(name: str, row: Module) -> dict[str, Any]:
    package = row.package
    contents: dict[str, Any] = {
        "__doc__": f"Stands in for {name}: {package.how}.",
        "__version__": package.version,
        "__getattr__": _refusing(name, package.name),
    }
    for offer in row.offers:
        home = importlib.import_module(f"torchdevice.packages.{offer.home}")
        contents |= {each: getattr(home, each) for each in offer.names}
    return contents


def _refusing(module: str, package: str) -> Callable[[str], Any]:
    def missing(name: str) -> Any:
        if f"{module}.{name}" in MODULES:  # the package itself imports its submodules
            return importlib.import_module(f"{module}.{name}")
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise AttributeError(
            explain_error(
                f"{module}.{name} was asked for",
                f"{package} is not installed, and its stand-in does not have this name",
                "docs/packages.md lists its names; `torchdevice run --no-packages` runs without stand-ins",
            )
        )

    return missing


finder = Finder()


def engage() -> Iterator[Undo]:
    """Enables imports of the packages of the table. Yields an undo function after each step."""
    look = importlib.util.find_spec

    def is_missing(package: str) -> bool:
        if finder.stands_in(package) or package in finder.hidden:
            return True
        return package not in sys.modules and look(package) is None

    def find_spec(name: str, package: str | None = None) -> Spec | None:
        top, _, below = name.partition(".")
        if top not in PACKAGES or not is_missing(top):
            return look(name, package)
        if below:
            raise ModuleNotFoundError(f"No module named {top!r}", name=top)
        return None

    def answer(check: Check) -> Undo | None:
        return say_yes(check) if is_missing(check.package) else None

    find_spec.__doc__ = look.__doc__
    yield apply([Replacement("importlib.util.find_spec", importlib.util, "find_spec", find_spec)]).undo
    if is_missing("triton") or sys.modules.get("triton", ...) is None:
        core.settle_triton()
    sys.meta_path.append(finder)
    yield lambda: sys.meta_path.remove(finder)
    yield finder.unload
    for check in CHECKS:
        yield when_imported(check.module, str(check.keys[0]), functools.partial(answer, check))
