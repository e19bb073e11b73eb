"""Interpreters in which TorchDevice does not run, refused with a reason. Imports no torch: that is what may not return."""

from __future__ import annotations

import sys

from torchdevice.errors import InterpreterUnsupported, explain_error

try:
    import _interpreters  # Python 3.13
except ImportError:
    try:
        import _xxsubinterpreters as _interpreters  # type: ignore[import-not-found, no-redef]
    except ImportError:  # an implementation without sub-interpreters
        _interpreters = None  # type: ignore[assignment]


def refuse_sub_interpreter() -> None:
    """`import torch` in a sub-interpreter hangs or fails inside torch's own C code: say so before it does."""
    if _interpreters is not None and _interpreters.get_current() != _interpreters.get_main():
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
