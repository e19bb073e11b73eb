"""Makes `import flash_attn` find the stand-in while a session is active, and nobody else see it.

The finder is the last one: what is installed is found before. It answers imports that are demands (`choices`).
`importlib.util.find_spec` says that the package is not there, and `importlib.metadata` has never heard of it, so that
libraries that look before they import keep their own choice.
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
    """Finds and makes the modules of `table`; a module that was made is the same for the life of the process."""

    def __init__(self) -> None:
        self._made: dict[str, ModuleType] = {}
        self.hidden: set[str] = set()  # installed, and shown only to who demands them

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> Spec | None:
        """A spec for who must have the package. Below it there is what the program has a stand-in of."""
        if fullname not in MODULES:
            return None
        top = fullname.partition(".")[0]
        wanted = not is_choice(sys._getframe(1)) if top == fullname else self.stands_in(top)
        return Spec(fullname, self, is_package=MODULES[fullname].is_package) if wanted else None

    def create_module(self, spec: Spec) -> ModuleType | None:
        """The module that was made before, if any."""
        return self._made.get(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Put the names of the row into a new module."""
        if module.__name__ not in self._made:
            vars(module).update(_contents(module.__name__, MODULES[module.__name__]))
            self._made[module.__name__] = module

    def stands_in(self, name: str) -> bool:
        """Whether a module of this name is loaded, and is one of ours."""
        return name in self._made and sys.modules.get(name) is self._made[name]

    def unload(self) -> None:
        """Imports find the truth again. Who holds a module keeps it: it computes by torch alone."""
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
        if f"{module}.{name}" in MODULES:  # the package itself imports what is below it
            return importlib.import_module(f"{module}.{name}")
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise AttributeError(
            explain_error(
                f"{module}.{name} was asked for",
                f"{package} is not installed, and its stand-in has no such name",
                "docs/packages.md lists what it has; `torchdevice run --no-packages` runs without stand-ins",
            )
        )

    return missing


finder = Finder()


def engage() -> Iterator[Undo]:
    """Let imports of the table's packages work. Each step, when it is done, gives its undo."""
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
