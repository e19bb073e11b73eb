"""A report as data: rows from records and their counts, with a plain text form. Richer forms come beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchdevice.events import Redirect, Site


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
class Report:
    """What was redirected, most frequent first."""

    rows: tuple[Row, ...]
    calls: int
    places: int

    @staticmethod
    def of(totals: Mapping[Redirect, int]) -> Report:
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
        return Report(tuple(rows), sum(totals.values()), len({record.site for record in totals}))

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
        if not self.rows:
            return self.summary()
        table = [("API", "asked", "given", "calls", "first place")]
        table += [(row.api, row.asked, row.given, str(row.calls), str(row.first)) for row in self.rows]
        widths = [max(len(line[column]) for line in table) for column in range(5)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table
        ]
        return "\n".join([*lines, self.summary()])


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
