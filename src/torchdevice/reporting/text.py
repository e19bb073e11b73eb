"""The report for a terminal: tables by `rich`, or plain columns where there is no terminal or no colour is wanted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TextIO

from torchdevice.events import Site
from torchdevice.reporting.collect import KINDS, Context, Report, Row, columns

HEADINGS = ("API", "asked", "given", "calls", "places", "first place")


def write(report: Report, context: Context, stream: TextIO) -> None:
    """The whole report; its last line is the summary."""
    if stream.isatty() and not os.environ.get("NO_COLOR"):
        _write_rich(report, context, stream)
    else:
        stream.write(render(report, context))
    stream.flush()


def render(report: Report, context: Context) -> str:
    """The report as plain columns."""
    lines = [_headline(context)]
    for title, rows in _sections(report):
        lines += ["", title, *columns([HEADINGS, *map(_cells, rows)])]
    return "\n".join([*lines, "", _last_line(report, context), ""])


def _write_rich(report: Report, context: Context, stream: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(file=stream, highlight=False, markup=False)
    console.print(_headline(context), style="bold")
    for title, rows in _sections(report):
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for heading in HEADINGS:
            table.add_column(heading, justify="right" if heading in ("calls", "places") else "left", overflow="fold")
        for row in rows:
            table.add_row(*_cells(row))
        console.print(table)
    console.print(_last_line(report, context), style="bold")


def _sections(report: Report) -> Iterator[tuple[str, tuple[Row, ...]]]:
    for kind in KINDS.values():
        rows = report.of_kind(kind.name)
        if rows:
            yield kind.title, rows


def _cells(row: Row) -> tuple[str, ...]:
    return row.api, row.asked, row.given, str(row.calls), str(row.places), short(row.first)


def short(site: Site) -> str:
    """The place as one would type it from here: relative where the file is below the current folder."""
    here = os.path.join(os.getcwd(), "")
    file = site.file[len(here) :] if site.file.startswith(here) else site.file
    return f"{file}:{site.line}"


def _headline(context: Context) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in context.versions.items())
    return f"torchdevice report: target {context.target}, policy {context.policy} ({versions})"


def _last_line(report: Report, context: Context) -> str:
    parts = [report.summary(), f"{context.seconds:.1f} s"]
    if context.processes > 1:
        parts.append(f"{context.processes} processes")
    return " · ".join(parts)
