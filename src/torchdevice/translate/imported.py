"""Names of torch that user code imported before the activation: `from torch import zeros`, `Stream` of torch.cuda.

They are bound to the replacements while those are in place. What functions hold otherwise (default arguments, closures)
stays as it is.
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
    """Bind such names in user code to what is in place now; the result takes those back that are still ours."""
    values = {id(original): value for original, value in applied.functions()}
    kept = vars(core)  # what code has from us is meant to be torch's own
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
