"""What was counted, as data that can be added up over processes and subtracted between moments. Formats nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torchdevice.events import Fallback, FallbackTotals, Redirect, Simulated, Site

Record = Redirect | Simulated  # `Changed` is a `Redirect`
Totals = Mapping[Record, int]
V = TypeVar("V", int, FallbackTotals, "Timed")


@dataclass(frozen=True, slots=True)
class Timed:
    """How often, how long, and how much of that in operators that ran elsewhere."""

    calls: int = 0
    seconds: float = 0.0
    elsewhere: float = 0.0

    def __add__(self, other: Timed) -> Timed:
        return Timed(self.calls + other.calls, self.seconds + other.seconds, self.elsewhere + other.elsewhere)


@dataclass(frozen=True)
class Profile:
    """Where the time went: by operator and the device that it ran on, and by line of user code.

    `seconds` is how long lines were sampled; `operators_missing` says why there is no time by operator, if so.
    """

    operators: Mapping[tuple[str, str], Timed] = field(default_factory=dict)
    lines: Mapping[Site, Timed] = field(default_factory=dict)
    seconds: float = 0.0
    operators_missing: str = ""

    def __add__(self, other: Profile) -> Profile:
        return Profile(
            added(self.operators, other.operators),
            added(self.lines, other.lines),
            self.seconds + other.seconds,
            self.operators_missing or other.operators_missing,
        )


@dataclass(frozen=True)
class Counts:
    """All figures of one process, or of several together. `seconds`: how long they ran, summed up.

    `unreadable`: processes that left figures that nobody can read.
    """

    records: Totals = field(default_factory=dict)
    fallbacks: Mapping[Fallback, FallbackTotals] = field(default_factory=dict)
    seconds: float = 0.0
    profile: Profile | None = None
    processes: int = 1
    unreadable: int = 0

    def __add__(self, other: Counts) -> Counts:
        profiles = [part for part in (self.profile, other.profile) if part is not None]
        return Counts(
            added(self.records, other.records),
            added(self.fallbacks, other.fallbacks),
            self.seconds + other.seconds,
            profiles[0] + profiles[1] if len(profiles) == 2 else profiles[0] if profiles else None,
            self.processes + other.processes,
            self.unreadable + other.unreadable,
        )

    def since(self, before: Counts) -> Counts:
        """What was counted after `before`, which an earlier moment of the same process gave."""
        return Counts(
            {
                record: calls - before.records.get(record, 0)
                for record, calls in self.records.items()
                if calls > before.records.get(record, 0)
            },
            {
                fallback: totals - before.fallbacks.get(fallback, NO_FALLBACK)
                for fallback, totals in self.fallbacks.items()
                if totals.calls > before.fallbacks.get(fallback, NO_FALLBACK).calls
            },
            self.seconds - before.seconds,
            self.profile,
        )

    def __bool__(self) -> bool:
        return bool(self.records or self.fallbacks or self.profile)


NO_FALLBACK = FallbackTotals(0, 0.0, 0)


def added(*parts: Mapping[Any, V]) -> dict[Any, V]:
    """Figures of several, key by key."""
    whole: dict[Any, V] = {}
    for part in parts:
        for key, figure in part.items():
            before = whole.get(key)
            whole[key] = figure if before is None else before + figure
    return whole
