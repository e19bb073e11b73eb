"""The report as one self-contained HTML file, made from `report.html.jinja`. Reads the source lines of user code."""

from __future__ import annotations

import itertools
import linecache
import os
from dataclasses import dataclass
from importlib.resources import files

from torchdevice.reporting import profile
from torchdevice.reporting.collect import KINDS, Context, Place, Report
from torchdevice.reporting.rewrites import PRELUDE, stored, suggestion
from torchdevice.reporting.text import short
from torchdevice.reporting.timeline import HEIGHT, WIDTH, pictures
from torchdevice.reporting.units import size, took

TEMPLATE, LINES, FALLBACKS = "report.html.jinja", "table.html.jinja", "fallbacks.html.jinja"


@dataclass(frozen=True)
class Line:
    """One line of user code with everything recorded for it."""

    file: str
    number: int
    source: str
    suggested: str | None
    calls: int
    places: tuple[Place, ...]


def render(report: Report, context: Context) -> str:
    """The report as HTML."""
    return _fill(TEMPLATE, report, context)


def fragment(report: Report) -> str:
    """Only the tables of lines and of fallbacks, for a notebook."""
    parts = [LINES] * bool(report.by_place) + [FALLBACKS] * bool(report.fallbacks)
    return "".join(_fill(part, report, Context()) for part in parts)


def lines(report: Report) -> list[Line]:
    """The places of a report grouped by line of user code, with its source and a suggestion.

    Lines of the same files that only store the name of a device are included, because a rewrite must change them too.
    """
    found = []
    for site, members in itertools.groupby(report.by_place, key=lambda place: place.site):
        places = tuple(members)
        source = linecache.getline(site.file, site.line).strip()
        suggested = suggestion(source, places[0].asked) if source else None
        calls = sum(place.calls for place in places)
        found.append(Line(site.file, site.line, source, suggested, calls, places))
    known = {(line.file, line.number) for line in found}
    for file in sorted({line.file for line in found}):
        for number, source in enumerate(linecache.getlines(file), 1):
            suggested = stored(source) if (file, number) not in known else None
            if suggested is not None:
                found.append(Line(file, number, source.strip(), suggested, 0, ()))
    return sorted(found, key=lambda line: (line.file, line.number))


def _fill(template: str, report: Report, context: Context) -> str:
    from jinja2 import DictLoader, Environment, StrictUndefined

    folder = files("torchdevice.reporting")
    templates = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in (TEMPLATE, LINES, FALLBACKS)}
    environment = Environment(
        loader=DictLoader(templates), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found = lines(report)
    operators, measured = report.by_operator(), report.profile
    return environment.get_template(template).render(
        report=report,
        context=context,
        kinds=KINDS,
        lines=found,
        most=max((line.calls for line in found), default=1),
        operators=operators,
        slowest=max((row.seconds for row in operators), default=0.0) or 1.0,
        profile_tables=[] if measured is None else list(profile.tables(measured, short)),
        pictures=[] if measured is None else pictures(measured),
        width=WIDTH,
        height=HEIGHT,
        prelude=PRELUDE,
        basename=os.path.basename,
        took=took,
        size=size,
    )
