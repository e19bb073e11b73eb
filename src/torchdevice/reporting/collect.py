"""A report as data: rows and places from records and their counts, the one-line summary, and plain columns.

Which kinds of records a report knows is the table `KINDS`. Forms for people and programs are `text`, `json` and
`html`; how records reach one process from others is `spool`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchdevice.events import Fallback, FallbackTotals, Redirect, Simulated, Site

Record = Redirect | Simulated
Totals = Mapping[Record, int]


@dataclass(frozen=True)
class Kind:
    """One kind of record: its name in reports, the words for its count in the summary, and what its columns hold."""

    name: str
    title: str
    counted: str
    columns: Callable[[Any], tuple[str, str, str]]  # asked, given, reason


# A further kind of record is one more row here.
KINDS: Mapping[type, Kind] = {
    Redirect: Kind(
        "redirected", "Redirected", "redirected", lambda record: (record.asked, record.given, record.reason)
    ),
    Simulated: Kind(
        "simulated",
        "Answered for a device that is not here",
        "answered",
        lambda record: (record.api.split(".")[1], record.target, record.kind),
    ),
}


@dataclass(frozen=True)
class Context:
    """What a report says about the run as a whole. Everything here was found out by somebody else."""

    target: str = ""
    policy: str = ""
    command: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1
    seconds: float = 0.0


@dataclass(frozen=True)
class Row:
    """One kind of event: an API, what it asked for and what it got, how often, and where first."""

    api: str
    asked: str
    given: str
    calls: int
    places: int
    first: Site
    reason: str
    kind: str = "redirected"


@dataclass(frozen=True)
class Place:
    """The same for one line of user code."""

    site: Site
    kind: str
    api: str
    asked: str
    given: str
    calls: int
    reason: str


@dataclass(frozen=True)
class FallbackRow:
    """One operator that ran elsewhere at one place: who ran it, why, and what it cost."""

    operator: str
    executor: str
    reason: str
    dtypes: tuple[str, ...]
    site: Site
    calls: int
    seconds: float
    bytes: int


@dataclass(frozen=True)
class Report:
    """What was changed, most frequent first; `by_place` has each line of user code, in the order of the files.

    `calls` and `places` count what was redirected.
    """

    rows: tuple[Row, ...]
    calls: int
    places: int
    by_place: tuple[Place, ...] = ()
    fallbacks: tuple[FallbackRow, ...] = ()

    @staticmethod
    def of(totals: Totals, fallbacks: Mapping[Fallback, FallbackTotals] | None = None) -> Report:
        """Group records by API and direction. Records come most frequent first; the first place is the lowest line."""
        each = [_place(record, calls) for record, calls in totals.items()]
        groups: dict[tuple[str, str, str, str], list[Place]] = {}
        for place in each:
            groups.setdefault((place.kind, place.api, place.asked, place.given), []).append(place)
        rows = [
            Row(
                api,
                asked,
                given,
                calls=sum(place.calls for place in members),
                places=len({place.site for place in members}),
                first=min((place.site for place in members), key=_order),
                reason=members[0].reason,
                kind=kind,
            )
            for (kind, api, asked, given), members in groups.items()
        ]
        rows.sort(key=lambda row: (-row.calls, row.api, row.asked, row.given))
        each.sort(key=lambda place: (*_order(place.site), place.api, place.asked, place.given))
        redirected = [place for place in each if place.kind == KINDS[Redirect].name]
        calls, places = sum(place.calls for place in redirected), len({place.site for place in redirected})
        elsewhere = tuple(
            FallbackRow(f.operator, f.executor, f.reason, f.dtypes, f.site, t.calls, t.seconds, t.bytes)
            for f, t in (fallbacks or {}).items()
        )
        return Report(tuple(rows), calls, places, tuple(each), elsewhere)

    def of_kind(self, name: str) -> tuple[Row, ...]:
        """The rows of one kind."""
        return tuple(row for row in self.rows if row.kind == name)

    def summary(self) -> str:
        """One line: where things went, how many calls, at how many places."""
        if not self.rows and not self.fallbacks:
            return "torchdevice: nothing was redirected"
        ways: dict[str, None] = {}
        for row in self.of_kind("redirected"):
            ways.setdefault(f"{row.asked.partition(':')[0]} → {row.given}")
        parts = [", ".join(list(ways)[:3])] if ways else []
        for kind in KINDS.values():
            members = [place for place in self.by_place if place.kind == kind.name]
            if members:
                calls = counted(sum(place.calls for place in members), "call")
                places = counted(len({place.site for place in members}), "place")
                parts.append(f"{calls} {kind.counted} at {places}")
        if self.fallbacks:
            parts.append(f"{counted(len({f.operator for f in self.fallbacks}), 'op')} fell back")
        return f"torchdevice: {' · '.join(parts)}"

    def __str__(self) -> str:
        table: list[tuple[str, ...]] = [("API", "asked", "given", "calls", "first place")]
        table += [(row.api, row.asked, row.given, str(row.calls), str(row.first)) for row in self.rows]
        elsewhere: list[tuple[str, ...]] = [("operator", "ran on", "calls", "ms", "kB", "place")]
        elsewhere += [
            (f.operator, f.executor, str(f.calls), f"{f.seconds * 1e3:.1f}", f"{f.bytes / 1e3:.1f}", str(f.site))
            for f in self.fallbacks
        ]
        lines = [*(columns(table) if self.rows else ()), *(columns(elsewhere) if self.fallbacks else ())]
        return "\n".join([*lines, self.summary()])


def columns(table: list[tuple[str, ...]]) -> list[str]:
    """Lines with aligned cells."""
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]


def counted(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def merged(*parts: Mapping[Any, int]) -> dict[Record, int]:
    """Counts of several processes, or of several kinds of records, as one."""
    whole: dict[Record, int] = {}
    for part in parts:
        for record, calls in part.items():
            whole[record] = whole.get(record, 0) + calls
    return whole


def since(before: Totals, now: Totals) -> dict[Record, int]:
    """What was counted between two moments."""
    return {record: calls - before.get(record, 0) for record, calls in now.items() if calls > before.get(record, 0)}


def _place(record: Record, calls: int) -> Place:
    kind = KINDS[type(record)]
    asked, given, reason = kind.columns(record)
    api = record.api.removesuffix(".__init__").removesuffix(".__new__")  # as the user calls it
    return Place(record.site, kind.name, api, asked, given, calls, reason)


def _order(site: Site) -> tuple[str, int]:
    return site.file, site.line
