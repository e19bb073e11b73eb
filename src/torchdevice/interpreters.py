"""What is asked of the interpreter: one in which TorchDevice runs, and a rest for its garbage collector meanwhile.

Imports no torch: that may never return.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
from collections.abc import Iterator
from typing import Any

from torchdevice.errors import InterpreterUnsupported, explain_error


def _numbers() -> Any:
    """Python's own module of sub-interpreters under the name that it has here; None in a Python without."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # since 3.13, and before
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


@contextlib.contextmanager
def collector_resting() -> Iterator[None]:
    """No garbage is collected inside: one full pass over what `import torch` made takes as long as an activation."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def refuse_sub_interpreter() -> None:
    """`import torch` in a sub-interpreter hangs or fails inside torch's own C code: say so before it does."""
    numbers = _numbers()
    if numbers is not None and numbers.get_current() != numbers.get_main():
        raise InterpreterUnsupported(
            explain_error(
                "torchdevice was asked for in a sub-interpreter",
                "torch itself can be imported only in the main interpreter of a process",
                "use a process of its own: multiprocessing, or concurrent.futures.ProcessPoolExecutor",
            )
        )


def refuse_without_global_lock() -> None:
    """Counts are exact, and activation is atomic, because of the lock; nobody has tried without."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise InterpreterUnsupported(
            explain_error(
                "activation was asked for in a free-threaded Python",
                "its global lock is off, and translation has never been tested without",
                "run it with PYTHON_GIL=1, or python -X gil=1",
            )
        )
