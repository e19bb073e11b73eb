"""What fell back: one record a place in user code, with its calls, seconds and bytes. Formats and prints nothing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType

from torchdevice.ledger import FOLD_BEYOND, Fallback, FallbackTotals, Site, renew_after_fork, told
from torchdevice.translate.callers import Roles, user_frame

Listener = Callable[[Fallback], None]
Key = tuple[object, ...]

# Gradients are computed in threads of autograd, where no line of user code is running.
IN_BACKWARD = Site("<backward pass>", 0)


class _Entry:
    """One place. It holds the code object, so that its identity is not reused while it is a key."""

    __slots__ = ("calls", "code", "moved", "record", "seconds")

    def __init__(self, record: Fallback, code: CodeType) -> None:
        self.record = record
        self.code = code
        self.calls = 0
        self.seconds = 0.0
        self.moved = 0


class FallbackLedger:
    """All fallbacks of the process since the last `clear`."""

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}
        self._folded: dict[Fallback, FallbackTotals] = {}
        self._lock = threading.Lock()
        self._roles = Roles()
        self.listener: Listener | None = None
        renew_after_fork(self, "_lock")

    def add(
        self, operator: str, executor: str, reason: str, dtypes: tuple[str, ...], seconds: float, moved: int
    ) -> None:
        """Count one call. The line of user code is looked up only when the place is new."""
        frame = user_frame(sys._getframe(1), self._roles)
        code = frame.f_code
        key = (id(code), frame.f_lasti, operator, executor, dtypes)
        fresh = None
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                if len(self._entries) >= FOLD_BEYOND:
                    self._folded = self._merged()
                    self._entries.clear()
                record = Fallback(operator, executor, reason, dtypes, self._site(frame))
                entry = self._entries[key] = _Entry(record, code)
                fresh = record
            entry.calls += 1
            entry.seconds += seconds
            entry.moved += moved
        if fresh is not None and self.listener is not None and not told(self.listener, fresh):
            self.listener = None

    def place(self) -> Site:
        """The line of user code that is running, for messages."""
        return self._site(user_frame(sys._getframe(1), self._roles))

    def _site(self, frame: FrameType) -> Site:
        if self._roles[frame.f_code.co_filename].inner:
            return IN_BACKWARD
        return Site(frame.f_code.co_filename, frame.f_lineno)

    def totals(self) -> dict[Fallback, FallbackTotals]:
        """Each record with its figures, the slowest first."""
        with self._lock:
            merged = self._merged()
        return dict(sorted(merged.items(), key=lambda item: -item[1].seconds))

    def _merged(self) -> dict[Fallback, FallbackTotals]:
        """Places by file and line, which do not grow with code that is made by `exec`."""
        merged = dict(self._folded)
        for entry in self._entries.values():
            before = merged.get(entry.record, FallbackTotals(0, 0.0, 0))
            merged[entry.record] = FallbackTotals(
                before.calls + entry.calls, before.seconds + entry.seconds, before.bytes + entry.moved
            )
        return merged

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._folded.clear()
