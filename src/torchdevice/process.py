"""Handles interpreters and forks. Does not import torch, whose import can hang in a sub-interpreter.

Unsupported interpreters are refused, the garbage collector is paused during activation, a fork waits for an activation
in progress, and a forked child that cannot use its parent's accelerator warns at its first request. `session` decides
what such a child does instead; `ledger.renew_after_fork` renews the locks of single objects.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from torchdevice.errors import InterpreterUnsupported, explain_error
from torchdevice.ledger import Redirect
from torchdevice.notices import warn


def _numbers() -> Any:
    """Python's module for sub-interpreters; None if this Python has none."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # since 3.13, and before
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    return None


@contextlib.contextmanager
def collector_resting() -> Iterator[None]:
    """Pause the garbage collector. A full collection after `import torch` takes as long as an activation."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def refuse_sub_interpreter() -> None:
    """Raise an error before `import torch` hangs or fails in torch's C code, as it does in a sub-interpreter."""
    numbers = _numbers()
    if numbers is not None and numbers.get_current() != numbers.get_main():
        raise InterpreterUnsupported(
            explain_error(
                "torchdevice was requested in a sub-interpreter",
                "torch itself can be imported only in the main interpreter of a process",
                "use a separate process: multiprocessing, or concurrent.futures.ProcessPoolExecutor",
            )
        )


def refuse_without_global_lock() -> None:
    """Raise an error if the GIL is off. Exact counts and atomic activation rely on it."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise InterpreterUnsupported(
            explain_error(
                "activation was requested in a free-threaded Python",
                "its GIL is off, and translation has not been tested without it",
                "run it with PYTHON_GIL=1, or python -X gil=1",
            )
        )


def guard(lock: Any, in_child: Callable[[], None]) -> None:
    """Make forks wait for the lock, so that no child starts in the middle of an activation, then call `in_child`."""

    def begin() -> None:
        lock.release()
        in_child()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=begin)


def say_lost(record: Redirect) -> None:
    """Warn at the line of the request: what it became, and why."""
    what = f"torchdevice: {record.api}({record.asked}) → {record.given}: {record.reason}"
    text = f"{what}. Hint: start processes with the spawn method"
    warn(text, (record.site.file, record.site.line))
