"""Where a report goes: `text`, `json:PATH`, `html:PATH`, `trace:PATH`, with commas between. `files` writes files."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

from torchdevice.errors import ConfigError, explain_error
from torchdevice.printable import printable
from torchdevice.reporting import files, html, json, text, trace
from torchdevice.reporting.collect import Context, Report

REPORT = "TORCHDEVICE_REPORT"  # the variable with the destinations; empty: none
SUMMARY = "summary"
TEXT = "text"
TRACE = "trace"  # needs a profile
FILES: dict[str, Callable[[Report, Context], str]] = {"json": json.render, "html": html.render, TRACE: trace.render}

# A comma separates destinations only if a destination follows it, so paths may contain commas.
_BETWEEN = re.compile(rf",(?=(?:{SUMMARY}|{TEXT}|(?:{'|'.join(FILES)}):))")


@dataclass(frozen=True)
class Destination:
    """One destination of a report. `path` is empty for stderr."""

    form: str
    path: str = ""

    def __str__(self) -> str:
        return f"{self.form}:{self.path}" if self.path else self.form


def is_destination(word: str) -> bool:
    """Whether an argument is a destination (and not a script)."""
    form, colon, path = word.partition(":")
    return word == TEXT or (form in FILES and bool(colon) and bool(path))


def parse(wanted: str) -> tuple[Destination, ...]:
    """Parse `text,html:report.html`. Paths become absolute, because programs change their current folder."""
    found = []
    for word in filter(None, _BETWEEN.split(wanted.strip())):
        form, _, path = word.partition(":")
        if word in (TEXT, SUMMARY):
            found.append(Destination(word))
        elif is_destination(word):
            found.append(Destination(form, _absolute(path)))
        else:
            raise _refusal(word, "no such format exists")
    return tuple(found)


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(os.path.expanduser(path))
    except ValueError as error:  # a null byte
        raise _refusal(path, f"it is not a path: {error}") from error


def _refusal(asked: str, decided: str) -> ConfigError:
    return ConfigError(
        explain_error(f"a report as {asked!r} was requested", decided, "use text, json:PATH, html:PATH or trace:PATH")
    )


def write(report: Report, context: Context, destinations: tuple[Destination, ...]) -> None:
    """Write to each destination. A failure prints a line on stderr and raises nothing, since the process is exiting."""
    forms = {destination.form for destination in destinations}
    written = [
        destination.path for destination in destinations if destination.path and _file(report, context, destination)
    ]
    if TEXT in forms:
        text.write(report, context, sys.stderr)
    elif report.profile is not None and not written:
        text.write_profile(report, sys.stderr)
    if SUMMARY in forms:
        # The text report already ends with the summary.
        parts = [] if TEXT in forms else [context.summary(report), *context.chosen]
        parts += [f"report in {', '.join(written)}"] * bool(written)
        hint = " (torchdevice run --report …)" if len(forms) == 1 and not report.empty else ""
        if parts:
            sys.stderr.write(f"{printable(' · '.join(parts))}{hint}\n")


def _file(report: Report, context: Context, destination: Destination) -> bool:
    text = FILES[destination.form](report, context)
    try:
        files.write(destination.path, text)
    except OSError as error:
        sys.stderr.write(
            printable(f"torchdevice: the report {destination.path} was not written: {error.strerror}") + "\n"
        )
        return False
    return True
