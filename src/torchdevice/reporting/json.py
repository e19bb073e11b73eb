"""The report for programs: JSON with a schema number and a stable order. docs/cli.md documents each field."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from torchdevice.events import Site
from torchdevice.reporting.collect import KINDS, Context, Report

SCHEMA = 1


def as_data(report: Report, context: Context) -> dict[str, Any]:
    """The report as plain data. Fields are only ever added; a change of meaning is a new schema number."""
    return {
        "schema": SCHEMA,
        "summary": report.summary(),
        "context": dataclasses.asdict(context),
        "counts": {
            kind.name: {
                "calls": sum(place.calls for place in report.by_place if place.kind == kind.name),
                "places": len({place.site for place in report.by_place if place.kind == kind.name}),
            }
            for kind in KINDS.values()
        },
        "rows": [_flat(row, "first") for row in report.rows],
        "places": [_flat(place, "site") for place in report.by_place],
    }


def render(report: Report, context: Context) -> str:
    """The report as text of a JSON file."""
    return json.dumps(as_data(report, context), indent=2, ensure_ascii=False) + "\n"


def _flat(row: Any, site_field: str) -> dict[str, Any]:
    values = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    site: Site = values.pop(site_field)
    return {"kind": values.pop("kind"), **values, "file": site.file, "line": site.line}
