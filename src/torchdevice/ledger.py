"""Records of what was changed, how they are counted, and who hears of them.

A record is built once per place (call site, API, request); after that a call costs one atomic count. Nothing here
formats or prints: see `reporting`.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Generic, Protocol, TypeVar

from torchdevice.errors import TorchDeviceWarning


@dataclass(frozen=True, slots=True)
class Site:
    """A place in user code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Redirect:
    """A request that became another: which API, what was asked, what it became, why, and where in user code."""

    api: str
    asked: str
    given: str
    reason: str
    site: Site


@dataclass(frozen=True, slots=True)
class Changed(Redirect):
    """A request whose meaning had to change: a dtype that the target lacks became another."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """A question to a device that is not here, answered by the one that is: which API, how, by what, and where."""

    api: str
    kind: str
    target: str
    site: Site


REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Fallback:
    """An operator that ran elsewhere: which one, who ran it and why, on which dtypes, and where in user code.

    The executor is `REFUSED` where nobody could or was allowed to.
    """

    operator: str
    executor: str
    reason: str
    dtypes: tuple[str, ...]
    site: Site


@dataclass(frozen=True, slots=True)
class FallbackTotals:
    """The figures of a `Fallback`: calls, seconds they took, bytes moved between the target and the executor."""

    calls: int
    seconds: float
    bytes: int

    def __add__(self, other: FallbackTotals) -> FallbackTotals:
        return FallbackTotals(self.calls + other.calls, self.seconds + other.seconds, self.bytes + other.bytes)

    def __sub__(self, other: FallbackTotals) -> FallbackTotals:
        return FallbackTotals(self.calls - other.calls, self.seconds - other.seconds, self.bytes - other.bytes)


class Record(Protocol):
    """What every record has."""

    @property
    def api(self) -> str: ...
    @property
    def site(self) -> Site: ...


T = TypeVar("T")
R = TypeVar("R", bound=Record)
Listener = Callable[[R], None]
Key = tuple[object, ...]

# Places are told apart by code object and instruction, which is cheap but grows with code made by `exec`: beyond
# this many they are folded into (file, line), so that memory stays flat.
FOLD_BEYOND = 20_000


def renew_after_fork(owner: object, attribute: str) -> None:
    """Give a forked child a lock of its own: another thread may hold the parent's at that moment, and never let go."""
    there = weakref.ref(owner)

    def renew() -> None:
        alive = there()
        if alive is not None:
            setattr(alive, attribute, threading.Lock())

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)


def told(listener: Callable[[T], None], record: T) -> bool:
    """Tell a listener; False if it raised, which costs one warning, and it should be dropped."""
    if sys.is_finalizing():  # modules are being taken down, the listener's own among them
        return True
    try:
        listener(record)
    except Exception as error:  # user code must not fail because somebody listens
        warnings.warn(
            f"torchdevice: the listener {listener!r} raised {error!r} and was dropped", TorchDeviceWarning, stacklevel=2
        )
        return False
    return True


class _Tally(Generic[R]):
    """One place: its record and an atomic counter (`next` on an `itertools.count` needs no lock)."""

    __slots__ = ("_looks", "code", "counter", "record")

    def __init__(self, record: R, code: CodeType) -> None:
        self.record = record
        self.code = code  # held, so that its identity is not reused while it is a key
        self.counter = itertools.count()
        self._looks = 0

    def total(self) -> int:
        """The count so far; looking counts too, so earlier looks are taken off."""
        seen = next(self.counter) - self._looks
        self._looks += 1
        return seen


class Ledger(Generic[R]):
    """All records of a session with their counts, and the listeners that hear of each place once."""

    def __init__(self) -> None:
        self._tallies: dict[Key, _Tally[R]] = {}
        self._folded: dict[R, int] = {}
        self._lock = threading.Lock()
        self._listeners: list[Listener[R]] = []
        renew_after_fork(self, "_lock")

    def counter(self, key: Key) -> Iterator[int] | None:
        """The counter of a known place: `next` on it counts a call."""
        tally = self._tallies.get(key)
        return None if tally is None else tally.counter

    def open(self, key: Key, code: CodeType, record: R) -> Iterator[int]:
        """Enter a new place and tell the listeners; its counter."""
        with self._lock:
            if len(self._tallies) >= FOLD_BEYOND:
                self._fold()
            tally = self._tallies.get(key)
            listeners = () if tally is not None or record in self._folded else tuple(self._listeners)
            if tally is None:
                tally = self._tallies[key] = _Tally(record, code)
        for listener in listeners:
            if not told(listener, record):
                self._drop(listener)
        return tally.counter

    def _fold(self) -> None:
        for tally in self._tallies.values():
            self._folded[tally.record] = self._folded.get(tally.record, 0) + tally.total()
        self._tallies.clear()

    def _drop(self, listener: Listener[R]) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    @contextmanager
    def listening(self, listener: Listener[R]) -> Iterator[None]:
        """Hear of each new place while inside."""
        self.listen(listener)
        try:
            yield
        finally:
            self._drop(listener)

    def listen(self, listener: Listener[R]) -> None:
        """Hear of each new place from now on."""
        with self._lock:
            self._listeners.append(listener)

    def totals(self) -> dict[R, int]:
        """Each record with its number of calls, most frequent first."""
        with self._lock:
            totals = dict(self._folded)
            for tally in self._tallies.values():
                totals[tally.record] = totals.get(tally.record, 0) + tally.total()
        return dict(sorted(totals.items(), key=lambda item: (-item[1], str(item[0].site), item[0].api)))

    def clear(self) -> None:
        """Forget all places and counts."""
        with self._lock:
            self._tallies.clear()
            self._folded.clear()
