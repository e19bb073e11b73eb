"""Records of what was changed, their counts, the cache of places, and the listeners for new records.

A record is built once per place (call site, API, request); after that a call costs one atomic count. `reporting`
formats and prints.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging import ERROR
from types import CodeType, FrameType
from typing import Any, Generic, Protocol, TypeVar

from torchdevice.notices import warn


@dataclass(frozen=True, slots=True)
class Site:
    """A place in user code: `file` and `line`."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirected request: which API, what was asked, what it became, why, and where in user code."""

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
    """A call about a missing device, answered for the target: which API, how, by what, and where.

    `loss`: what the answer lacks of what the API has on its own device.
    """

    api: str
    kind: str
    target: str
    site: Site
    loss: str = ""


@dataclass(frozen=True, slots=True)
class StandIn:
    """A call of a missing package: which name, what computes it, and where."""

    api: str
    by: str
    site: Site


@dataclass(frozen=True, slots=True)
class Shortage:
    """A call for which the target had too little memory: which API, which target, what was done, and where."""

    api: str
    target: str
    given: str
    site: Site


REFUSED = "refused"
UNSUPPORTED = "unsupported"  # the kind of a `Simulated` call that raised an error


@dataclass(frozen=True, slots=True)
class Fallback:
    """An operator that fell back.

    - `operator`: its name; `dtypes`: of its tensors.
    - `executor`: what ran it: `"cpu"` or `"mlx"`; `"refused"` if no executor could or was allowed to; `reason`: why.
    - `site`: where in user code.
    """

    operator: str
    executor: str
    reason: str
    dtypes: tuple[str, ...]
    site: Site


@dataclass(frozen=True, slots=True)
class FallbackTotals:
    """The figures of a `Fallback`: `calls`, their `seconds`, and `bytes` copied between the target and the executor."""

    calls: int
    seconds: float
    bytes: int

    def __add__(self, other: FallbackTotals) -> FallbackTotals:
        return FallbackTotals(self.calls + other.calls, self.seconds + other.seconds, self.bytes + other.bytes)

    def __sub__(self, other: FallbackTotals) -> FallbackTotals:
        return FallbackTotals(self.calls - other.calls, self.seconds - other.seconds, self.bytes - other.bytes)


class Record(Protocol):
    """The common interface of records."""

    @property
    def site(self) -> Site: ...


R = TypeVar("R", bound=Record)
Listener = Callable[[R], None]
Key = tuple[object, ...]

# Places are identified by code object and instruction, which is cheap, but their number grows with code made by `exec`.
# Beyond this many, they are merged by (file, line), so that memory stays bounded.
FOLD_BEYOND = 20_000


def renew_after_fork(owner: object, attribute: str) -> None:
    """Give a forked child a new lock, because a thread that does not exist in the child may hold the parent's."""
    there = weakref.ref(owner)

    def renew() -> None:
        alive = there()
        if alive is not None:
            setattr(alive, attribute, threading.Lock())

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=renew)


def _told(listener: Listener[R], record: R) -> bool:
    """Call a listener. Returns False, after a warning, if it raised and should be dropped."""
    if sys.is_finalizing():  # modules, also the listener's own, are being unloaded
        return True
    try:
        listener(record)
    except Exception as error:  # user code must not fail because of a listener
        warn(f"torchdevice: the listener {listener!r} raised {error!r} and was dropped", level=ERROR, stacklevel=2)
        return False
    return True


class Source(Protocol):
    """A counter in C++ for calls at a place."""

    def totals(self) -> FallbackTotals: ...


class Tally(Generic[R]):
    """One place: its record and an atomic counter (`next` on an `itertools.count` needs no lock).

    `sources` are further counters for the same place.
    """

    __slots__ = ("_code", "_key", "_looks", "_moved", "_seconds", "counter", "record", "sources")

    def __init__(self, record: R, key: Key, code: CodeType) -> None:
        self.record = record
        self.counter = itertools.count()
        self._key = key
        self._code = code  # kept alive, so that its address is not reused while it is in a key
        self._looks = 0
        self._seconds = 0.0
        self._moved = 0
        self.sources: list[Source] = []

    def totals(self) -> FallbackTotals:
        """The figures so far. Reading the counter increments it, so earlier reads are subtracted."""
        calls = next(self.counter) - self._looks
        self._looks += 1
        figures = FallbackTotals(calls, self._seconds, self._moved)
        for source in self.sources:
            figures += source.totals()
        return figures


class Ledger(Generic[R]):
    """All records of one kind with their figures, and the listeners, which are called once per place.

    `places` is a cache of decisions per place, read without a lock by one lookup. Each entry belongs to a tally and is
    removed with it, so an address in a key always belongs to a living code object.
    """

    def __init__(self) -> None:
        self.places: dict[Key, Any] = {}
        self.epoch = 0  # increases when places are cleared
        self._tallies: dict[Key, Tally[R]] = {}
        self._folded: dict[R, FallbackTotals] = {}
        self._lock = threading.Lock()
        self._listeners: list[Listener[R]] = []
        self._forgetful: list[Callable[[], object]] = []
        renew_after_fork(self, "_lock")

    def tally(self, frame: FrameType, about: Key, record: Callable[[Site], R]) -> Tally[R]:
        """The tally of a place: the position of `frame`, and `about`. For a new one, listeners get its record."""
        key = (id(frame.f_code), frame.f_lasti, *about)
        return self._tallies.get(key) or self._open(key, frame, record)

    def count(self, frame: FrameType, about: Key, record: Callable[[Site], R]) -> bool:
        """Count a call at a place. Returns whether the place is new."""
        key = (id(frame.f_code), frame.f_lasti, *about)
        known = self._tallies.get(key)
        next((known or self._open(key, frame, record)).counter)
        return known is None

    def measure(
        self, frame: FrameType, about: Key, record: Callable[[Site], R], seconds: float = 0.0, moved: int = 0
    ) -> None:
        """Count a call at a place, with its time and the bytes that it copied."""
        tally = self.tally(frame, about, record)
        with self._lock:
            next(tally.counter)
            tally._seconds += seconds
            tally._moved += moved

    def enter(self, record: R) -> None:
        """Count a record that belongs to no line of code, once per process."""
        with self._lock:
            is_new = record not in self._folded
            self._folded.setdefault(record, FallbackTotals(1, 0.0, 0))
        if is_new:
            self._tell(record)

    def remember(self, tally: Tally[R], key: Key, what: object, epoch: int) -> None:
        """Store `what` at `places[key]`, unless the epoch in which it was decided is over.

        An address in `key` must be that of the tally's code object.
        """
        with self._lock:
            if epoch == self.epoch and self._tallies.get(tally._key) is tally:  # else it was merged in the meantime
                self.places[key] = what

    def forget_places(self) -> None:
        """Clear the cached decisions. The counts are kept."""
        with self._lock:
            self.epoch += 1
            self.places.clear()

    def when_forgotten(self, callback: Callable[[], object]) -> None:
        """Register a callback for when tallies are dropped: counters of a place must then request its tally again."""
        if callback not in self._forgetful:
            self._forgetful.append(callback)

    def _open(self, key: Key, frame: FrameType, record: Callable[[Site], R]) -> Tally[R]:
        code = frame.f_code
        made = Tally(record(Site(code.co_filename, frame.f_lineno)), key, code)
        with self._lock:
            if len(self._tallies) >= FOLD_BEYOND:
                self._folded = self._sums()
                self._let_go()
            tally = self._tallies.setdefault(key, made)
            is_new = tally is made and made.record not in self._folded
        if is_new:
            self._tell(made.record)
        return tally

    def _tell(self, record: R) -> None:
        for listener in tuple(self._listeners):
            if not _told(listener, record):
                self._drop(listener)

    def _let_go(self) -> None:
        """Drop all tallies. The order matters: a place must be removed before the tally that keeps its code alive."""
        self.places.clear()
        for forget in self._forgetful:
            forget()
        self._tallies.clear()

    def _sums(self) -> dict[R, FallbackTotals]:
        """Figures per record, that is, per file and line, whose number does not grow with code made by `exec`."""
        sums = dict(self._folded)
        for tally in self._tallies.values():
            figures, before = tally.totals(), sums.get(tally.record)
            sums[tally.record] = figures if before is None else before + figures
        return sums

    def _drop(self, listener: Listener[R]) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    @contextmanager
    def listening(self, listener: Listener[R]) -> Iterator[None]:
        """Call `listener` for each new place inside the block."""
        with self._lock:
            self._listeners.append(listener)
        try:
            yield
        finally:
            self._drop(listener)

    def totals(self) -> dict[R, int]:
        """Each record with its number of calls, most frequent first."""
        with self._lock:
            calls = {record: figures.calls for record, figures in self._sums().items()}
        return dict(sorted(calls.items(), key=lambda item: (-item[1], str(item[0].site))))

    def measured(self) -> dict[R, FallbackTotals]:
        """Each record with all its figures, the slowest first."""
        with self._lock:
            sums = self._sums()
        return dict(sorted(sums.items(), key=lambda item: -item[1].seconds))

    def clear(self) -> None:
        """Forget all places and counts."""
        with self._lock:
            self._let_go()
            self._folded.clear()


# Created at import, so that a forked child has new locks before it uses them.
simulations: Ledger[Simulated] = Ledger()
stand_ins: Ledger[StandIn] = Ledger()
shortages: Ledger[Shortage] = Ledger()
# Defined here, so that a report without fallbacks does not load `fallback`.
fallbacks: Ledger[Fallback] = Ledger()
