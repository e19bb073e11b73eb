"""The CPU override: a process-wide switch that `cpu:-1` flips, and a scope that nests and unwinds.

What the override means for a request is decided in `resolve`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torchdevice.events import renew_after_fork

_forced: ContextVar[bool] = ContextVar("torchdevice_cpu_override", default=False)


class CpuOverride:
    """On while either the process-wide switch is on or the current context is inside `scope()`."""

    def __init__(self) -> None:
        self._flipped = False
        self._lock = threading.Lock()
        renew_after_fork(self, "_lock")

    def is_on(self) -> bool:
        """Whether plain `cpu` requests yield the CPU at this moment, in this context."""
        return self._flipped or _forced.get()

    def flip(self) -> None:
        """What each `cpu:-1` request does."""
        with self._lock:
            self._flipped = not self._flipped

    def reset(self) -> None:
        """Off, as at the start."""
        with self._lock:
            self._flipped = False

    @contextmanager
    def scope(self) -> Iterator[None]:
        """On inside, as it was before outside; per thread and per task, whatever `cpu:-1` does meanwhile."""
        token = _forced.set(True)
        try:
            yield
        finally:
            _forced.reset(token)
