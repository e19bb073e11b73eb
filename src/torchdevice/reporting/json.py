"""The report as JSON, with a schema number and a stable order. docs/cli.md documents each field."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from torchdevice.ledger import Site
from torchdevice.reporting.collect import KINDS, Context, Memory, Profile, Report
from torchdevice.reporting.profile import (
    line_rows,
    memory_rows,
    operator_rows,
    operators_per_second,
    samples_per_second,
)

SCHEMA = 1


def as_data(report: Report, context: Context) -> dict[str, Any]:
    """The report as plain data. Fields are only added; a change of meaning gets a new schema number."""
    counts: dict[str, Any] = {}
    for kind in KINDS:
        calls, places = report.count(kind)
        counts[kind] = {"calls": calls, "places": places}
    counts["fallbacks"] = {
        "operators": len({row.operator for row in report.fallbacks}),
        "calls": sum(row.calls for row in report.fallbacks),
        "places": len({row.site for row in report.fallbacks}),
        "seconds": report.fallback_seconds,
        "bytes": sum(row.bytes for row in report.fallbacks),
    }
    return {
        "schema": SCHEMA,
        "summary": context.summary(report),
        "context": dataclasses.asdict(context),
        "counts": counts,
        "rows": [_flat(row, "first") for row in report.rows],
        "places": [_flat(place, "site") for place in report.by_place],
        "fallbacks": [_flat(row, "site") for row in report.fallbacks],
        "profile": _profile(report.profile) if report.profile is not None else None,
    }


def render(report: Report, context: Context) -> str:
    """The report as JSON text."""
    return json.dumps(as_data(report, context), indent=2, ensure_ascii=False) + "\n"


def _flat(row: Any, site_field: str) -> dict[str, Any]:
    values = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    site: Site = values.pop(site_field)
    first = {"kind": values.pop("kind")} if "kind" in values else {}
    return {**first, **values, "file": site.file, "line": site.line}


def _profile(profile: Profile) -> dict[str, Any]:
    return {
        "seconds": profile.seconds,
        "operators_missing": profile.operators_missing or None,
        "float16_on_cpu_seconds": profile.half_seconds,
        "operators_per_second": operators_per_second(profile),
        "batches": profile.batches,
        "samples": profile.samples,
        "samples_per_second": samples_per_second(profile),
        "operators": [
            {
                "operator": name,
                "device": device,
                "calls": timed.calls,
                "seconds": timed.seconds,
                "allocated": profile.operator_memory.get((name, device), Memory()).allocated,
            }
            for name, figures in operator_rows(profile)
            for device, timed in sorted(figures.items())
        ],
        "lines": [
            {
                "file": site.file,
                "line": site.line,
                "seconds": timed.seconds,
                "fallback_seconds": timed.elsewhere,
                "first_use_seconds": timed.first_use,
            }
            for site, timed in line_rows(profile)
        ],
        "memory": [
            {"file": site.file, "line": site.line, **dataclasses.asdict(memory)}
            for site, memory in memory_rows(profile)
        ],
        "timeline": list(map(dataclasses.asdict, profile.timeline)),
    }
