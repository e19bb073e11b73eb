"""The report as text: tables by `rich` in a terminal, plain columns without a terminal or colours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TextIO

from torchdevice.environment import environment
from torchdevice.ledger import Site
from torchdevice.printable import printable, printable_lines
from torchdevice.reporting import profile
from torchdevice.reporting.collect import KINDS, Context, Report, columns
from torchdevice.reporting.profile import Table
from torchdevice.reporting.units import size, took

HEADINGS = ("API", "asked", "given", "calls", "places", "first place")
FALLBACK_HEADINGS = ("operator", "ran on", "calls", "places", "time", "moved", "why", "first place")
_NUMBERS = frozenset(
    {"calls", "places", "time", "moved", "share", "in fallbacks", "first use", "allocated", "in use", "copied"}
)


def write(report: Report, context: Context, stream: TextIO) -> None:
    """Write the whole report. Its last line is the summary."""
    _draw(printable(_headline(context)), list(tables(report)), printable(last_line(report, context)), stream)


def write_profile(report: Report, stream: TextIO) -> None:
    """Write only the tables of the profile."""
    _draw("", list(_profile(report)), "", stream)


def render(report: Report, context: Context) -> str:
    """The report as plain columns."""
    return _plain(printable(_headline(context)), list(tables(report)), printable(last_line(report, context)))


def _draw(first: str, drawn: list[Table], last: str, stream: TextIO) -> None:
    if stream.isatty() and not environment().get("NO_COLOR"):
        _write_rich(first, drawn, last, stream)
    else:
        stream.write(_plain(first, drawn, last))
    stream.flush()


def _plain(first: str, drawn: list[Table], last: str) -> str:
    lines = [first] if first else []
    for table in drawn:
        lines += ["", table.title, *(columns([table.headings, *table.rows]) if table.rows else ())]
        lines += [printable_lines(table.note)] if table.note else []
    return "\n".join([*lines, "", *([last, ""] if last else [""])])


def _write_rich(first: str, drawn: list[Table], last: str, stream: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable

    console = Console(file=stream, highlight=False, markup=False)
    if first:
        console.print(first, style="bold")
    for table in drawn:
        shown = RichTable(title=table.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for heading in table.headings:
            number = heading in _NUMBERS or heading.startswith("on ")
            shown.add_column(printable(heading), justify="right" if number else "left", overflow="fold")
        for row in table.rows:
            shown.add_row(*map(printable, row))
        console.print(shown if table.rows else table.title)
        if table.note:
            console.print(printable_lines(table.note))
    if last:
        console.print(last, style="bold")


def tables(report: Report) -> Iterator[Table]:
    """All tables of a report that are not empty."""
    cells: list[tuple[str, ...]]
    for name, kind in KINDS.items():
        rows = report.of_kind(name)
        if rows:
            cells = [(row.api, row.asked, row.given, str(row.calls), str(row.places), short(row.first)) for row in rows]
            yield Table(kind.title, HEADINGS, cells)
    elsewhere = report.by_operator()
    if elsewhere:
        cells = [
            (
                row.operator,
                row.executor,
                str(row.calls),
                str(row.places),
                took(row.seconds),
                size(row.bytes),
                row.reason,
                short(row.first),
            )
            for row in elsewhere
        ]
        yield Table("Operators that fell back", FALLBACK_HEADINGS, cells)
    yield from _profile(report)


def _profile(report: Report) -> Iterator[Table]:
    if report.profile is not None:
        yield from profile.tables(report.profile, short)


def short(site: Site) -> str:
    """The place, with a relative path if the file is below the current folder."""
    here = os.path.join(os.getcwd(), "")
    file = site.file[len(here) :] if site.file.startswith(here) else site.file
    return f"{file}:{site.line}"


def _headline(context: Context) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in context.versions.items())
    placed = f", placed on {context.placed}" if context.placed else ""
    return f"torchdevice report: target {context.device}{placed}, policy {context.policy} ({versions})"


def last_line(report: Report, context: Context) -> str:
    """The summary, the total time, and the time in fallbacks."""
    parts = [context.summary(report), f"{context.seconds:.1f} s"]
    if context.processes > 1:
        parts.append(f"{context.processes} processes")
    share = report.fallback_seconds / context.process_seconds if context.process_seconds else 0.0
    parts.append(f"{took(report.fallback_seconds)} ({share:.1%}) in fallbacks")
    parts += context.chosen
    return " · ".join(parts)
