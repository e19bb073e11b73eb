"""Names of torch that user code imported before the activation: `from torch import zeros`, `Stream` of torch.cuda.

They are bound to the replacements while these are applied. Other references in functions (default arguments, closures)
are not changed.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from types import ModuleType

from torchdevice._torch import core
from torchdevice.translate.callers import INSTALLED, OURS
from torchdevice.translate.engine import Applied, Replacement, apply

_NOBODYS = (
    OURS,
    core.TORCH_FOLDER,
    *(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")),
)


def rebind(applied: Applied) -> Applied:
    """Bind such names in user code to the applied replacements. The result can undo this."""
    values = {id(original): value for original, value in applied.functions()}
    kept = vars(core)  # names that code imported from `core` are meant to be torch's originals
    return apply(
        Replacement(f"{module.__name__}.{name}", module, name, values[id(value)])
        for module in _user_modules()
        for name, value in list(vars(module).items())
        if id(value) in values and kept.get(name) is not value
    )


def _user_modules() -> Iterator[ModuleType]:
    for name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType):
            continue
        file = vars(module).get("__file__")
        if name == "__main__" or (
            isinstance(file, str) and not file.startswith(_NOBODYS) and not INSTALLED.search(file)
        ):
            yield module
