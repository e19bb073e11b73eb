"""A trace of all operators, for Perfetto (ui.perfetto.dev) and chrome://tracing, in the Trace Event Format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from torchdevice.reporting.collect import Context, Profile, Report

_MICROSECONDS = 1e6


def render(report: Report, context: Context) -> str:
    """The trace as JSON text. Without a profile it has no events."""
    profile = report.profile or Profile()
    facts = {"target": context.target, "policy": context.policy, "command": context.command, **context.versions}
    return json.dumps({"traceEvents": list(_events(profile)), "displayTimeUnit": "ms", "otherData": facts}) + "\n"


def _events(profile: Profile) -> Iterator[dict[str, Any]]:
    begin = min(
        [event.start for event in profile.events] + [moment.seconds for moment in profile.timeline], default=0.0
    )
    for process, thread in sorted({(event.process, event.thread) for event in profile.events}):
        name = f"operators, thread {thread}"
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}}
    for event in profile.events:
        yield {
            "ph": "X",
            "name": event.operator,
            "cat": event.device,
            "pid": event.process,
            "tid": event.thread,
            "ts": (event.start - begin) * _MICROSECONDS,
            "dur": event.seconds * _MICROSECONDS,
            "args": {"device": event.device},
        }
    for moment in profile.timeline:
        if moment.held >= 0:
            when = (moment.seconds - begin) * _MICROSECONDS
            held = {"bytes": moment.held}
            yield {"ph": "C", "name": "memory in use", "pid": moment.process, "ts": when, "args": held}
