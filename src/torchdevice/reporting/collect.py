"""A report as data: rows from records and their counts, with a plain text form. Richer forms come beside this file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchdevice.events import Fallback, FallbackTotals, Redirect, Site


@dataclass(frozen=True)
class Row:
    """One kind of redirection: an API, what it asked for and what it got, how often, and where first."""

    api: str
    asked: str
    given: str
    calls: int
    places: int
    first: Site
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
    """What was redirected, most frequent first, and what ran elsewhere, slowest first."""

    rows: tuple[Row, ...]
    calls: int
    places: int
    fallbacks: tuple[FallbackRow, ...] = ()

    @staticmethod
    def of(totals: Mapping[Redirect, int], fallbacks: Mapping[Fallback, FallbackTotals] | None = None) -> Report:
        """Group records by API and direction. Records come most frequent first; the first place is the lowest line."""
        groups: dict[tuple[str, str, str], list[tuple[Redirect, int]]] = {}
        for record, calls in totals.items():
            groups.setdefault((record.api, record.asked, record.given), []).append((record, calls))
        rows = [
            Row(
                api,
                asked,
                given,
                calls=sum(calls for _, calls in members),
                places=len({record.site for record, _ in members}),
                first=min((record.site for record, _ in members), key=lambda site: (site.file, site.line)),
                reason=members[0][0].reason,
            )
            for (api, asked, given), members in groups.items()
        ]
        rows.sort(key=lambda row: (-row.calls, row.api, row.asked))
        elsewhere = tuple(
            FallbackRow(f.operator, f.executor, f.reason, f.dtypes, f.site, t.calls, t.seconds, t.bytes)
            for f, t in (fallbacks or {}).items()
        )
        return Report(tuple(rows), sum(totals.values()), len({record.site for record in totals}), elsewhere)

    def summary(self) -> str:
        """One line: where things went, how many calls, at how many places."""
        if not self.rows:
            return "torchdevice: nothing was redirected"
        ways: dict[str, None] = {}
        for row in self.rows:
            ways.setdefault(f"{row.asked.partition(':')[0]} → {row.given}")
        return (
            f"torchdevice: {', '.join(list(ways)[:3])} · {_counted(self.calls, 'call')} redirected "
            f"at {_counted(self.places, 'place')}"
        )

    def __str__(self) -> str:
        redirected = [("API", "asked", "given", "calls", "first place")]
        redirected += [(row.api, row.asked, row.given, str(row.calls), str(row.first)) for row in self.rows]
        elsewhere = [("operator", "ran on", "calls", "ms", "kB", "place")]
        elsewhere += [
            (f.operator, f.executor, str(f.calls), f"{f.seconds * 1e3:.1f}", f"{f.bytes / 1e3:.1f}", str(f.site))
            for f in self.fallbacks
        ]
        lines = [*(_aligned(redirected) if self.rows else ()), self.summary()]
        return "\n".join([*lines, *(_aligned(elsewhere) if self.fallbacks else ())])


def _aligned(table: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
