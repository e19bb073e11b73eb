"""What TorchDevice needs of the interpreter and of forks. Imports no torch: in a sub-interpreter that may never return.

Interpreters that cannot work are refused, the garbage collector is paused during activation, a fork waits for an
activation that is under way, and a child that lost its parent's accelerator says so at its first request. What such a
child does instead is decided by `session`; locks of single objects are renewed by `ledger.renew_after_fork`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from torchdevice.errors import InterpreterUnsupported, TorchDeviceWarning, explain_error
from torchdevice.ledger import Redirect


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


def guard(lock: Any, in_child: Callable[[], None]) -> None:
    """A fork waits for whoever holds the lock, so that no child begins with half of an activation; then `in_child`."""

    def begin() -> None:
        lock.release()
        in_child()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=begin)


def say_lost(record: Redirect) -> None:
    """A warning at the line that asked: what became of it, and why."""
    what = f"torchdevice: {record.api}({record.asked}) → {record.given}: {record.reason}"
    text = f"{what}. Hint: start processes by spawn"
    warnings.warn_explicit(text, TorchDeviceWarning, record.site.file, record.site.line)
