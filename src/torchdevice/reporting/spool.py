"""Passes the figures of child processes to the process that reports: one small file per child, in the run's folder.

`run_child` decides which process writes and reads, and when.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchdevice.ledger import Changed, Fallback, FallbackTotals, Redirect, Shortage, Simulated, Site, StandIn
from torchdevice.ownership import writable_by_others
from torchdevice.reporting.collect import Counts, Event, Memory, Moment, Profile, Timed

RUN = "TORCHDEVICE_RUN"  # the variable with the folder, which exists until the run is reported

_BY_NAME = {kind.__name__: kind for kind in (Redirect, Changed, Simulated, StandIn, Shortage, Fallback)}


# The folder's name has the id of the process that started the run; a file's name has the id of its writer.
_FOLDER = re.compile(r"torchdevice-(\d+)-[0-9a-f]{16}")
_LEFT = re.compile(r"\d+-[0-9a-f]{8}\.(json|part)")


def new_folder() -> str:
    """A name for a run's folder. The first process that imports torch creates it."""
    return os.path.join(tempfile.gettempdir(), f"torchdevice-{os.getpid()}-{os.urandom(8).hex()}")


def began_here(folder: Path) -> bool:
    """Whether this process or its parent started the run; otherwise the variable comes from another run."""
    named = _FOLDER.fullmatch(folder.name)
    return named is not None and int(named[1]) in (os.getpid(), os.getppid())


def claim(folder: Path) -> bool:
    """Whether the caller is the first process of the run, which creates the folder and reports.

    If no folder can be created (a full disk), every process reports its own figures.
    """
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700)
        return True
    return not folder.exists()


def write(folder: Path, counts: Counts) -> None:
    """Write this process's figures atomically. A process with a reused id writes another file.

    Raises FileNotFoundError if the run has ended. A folder that another user created under that name is not used.
    """
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or writable_by_others(found):
        raise FileNotFoundError(errno.ENOENT, "the folder of the run belongs to another user", str(folder))
    name = f"{os.getpid()}-{os.urandom(4).hex()}"
    unfinished = folder / f"{name}.part"
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(_as_data(counts), file)
    unfinished.replace(folder / f"{name}.json")


def read(folder: Path) -> Counts:
    """The sum of the figures written so far."""
    whole = Counts(processes=0)
    for path in sorted(path for path in folder.glob("*.json") if _LEFT.fullmatch(path.name)):
        try:
            whole += parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # a full disk, or a file of another program
            whole += Counts(processes=0, unreadable=1)
    return whole


def parse(text: str) -> Counts:
    """Parse the figures in one file. Raises ValueError for anything else."""
    try:
        return _from_data(json.loads(text))
    except (TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"not the figures of a process: {error}") from error


def remove(folder: Path) -> None:
    """End the run and remove its folder. A child that writes later finds no folder and reports its own figures.

    Only files written by `write` are deleted, because the variable may name a folder that the program uses.
    """
    with contextlib.suppress(OSError):
        while left := [path for path in folder.iterdir() if _LEFT.fullmatch(path.name)]:
            for path in left:
                path.unlink(missing_ok=True)
        folder.rmdir()


def _as_data(counts: Counts) -> dict[str, Any]:
    profile = counts.profile
    return {
        "records": [_record(record, calls) for record, calls in counts.records.items()],
        "fallbacks": [_record(fallback, dataclasses.astuple(t)) for fallback, t in counts.fallbacks.items()],
        "seconds": counts.seconds,
        "profile": profile
        and {
            "operators": [[*key, dataclasses.astuple(timed)] for key, timed in profile.operators.items()],
            "lines": [[site.file, site.line, dataclasses.astuple(timed)] for site, timed in profile.lines.items()],
            "seconds": profile.seconds,
            "operators_missing": profile.operators_missing,
            "half_seconds": profile.half_seconds,
            "batches": profile.batches,
            "samples": profile.samples,
            "operator_memory": [[*key, dataclasses.astuple(each)] for key, each in profile.operator_memory.items()],
            "line_memory": [
                [*dataclasses.astuple(site), dataclasses.astuple(m)] for site, m in profile.line_memory.items()
            ],
            "timeline": list(map(dataclasses.astuple, profile.timeline)),
            "events": list(map(dataclasses.astuple, profile.events)),
        },
    }


def _from_data(data: dict[str, Any]) -> Counts:
    profile = data["profile"]
    return Counts(
        {record: _checked(int, calls) for record, calls in map(_read_record, data["records"])},
        {fallback: _made(FallbackTotals, figures) for fallback, figures in map(_read_record, data["fallbacks"])},
        _checked(float, data["seconds"]),
        Profile(
            _by_operator(Timed, profile["operators"]),
            _by_line(Timed, profile["lines"]),
            _checked(float, profile["seconds"]),
            _checked(str, profile["operators_missing"]),
            _checked(float, profile["half_seconds"]),
            _checked(int, profile["batches"]),
            _checked(int, profile["samples"]),
            _by_operator(Memory, profile["operator_memory"]),
            _by_line(Memory, profile["line_memory"]),
            tuple(_made(Moment, values) for values in profile["timeline"]),
            tuple(_made(Event, values) for values in profile["events"]),
        )
        if profile is not None
        else None,
    )


def _by_operator(kind: Any, rows: list[Any]) -> dict[tuple[str, str], Any]:
    return {(_checked(str, name), _checked(str, device)): _made(kind, figures) for name, device, figures in rows}


def _by_line(kind: Any, rows: list[Any]) -> dict[Site, Any]:
    return {_made(Site, (file, line)): _made(kind, figures) for file, line, figures in rows}


def _record(record: Any, figures: Any) -> list[Any]:
    return [type(record).__name__, dataclasses.asdict(record), figures]


def _read_record(row: list[Any]) -> tuple[Any, Any]:
    name, fields, figures = row
    kind = _BY_NAME[name]
    values = [fields[field.name] for field in dataclasses.fields(kind)]
    return _made(kind, values), figures


_PLAIN = {"str": str, "int": int, "float": float}


def _made(kind: Any, values: Sequence[Any]) -> Any:
    """Make a dataclass from the values of its fields, and check their types."""
    made = []
    for field, value in zip(dataclasses.fields(kind), values, strict=True):
        if field.type == "Site":
            made.append(_made(Site, (value["file"], value["line"])))
        elif field.type in _PLAIN:
            made.append(_checked(_PLAIN[str(field.type)], value))
        else:
            made.append(tuple(_checked(str, each) for each in value))
    return kind(*made)


def _checked(kind: type, value: Any) -> Any:
    if not isinstance(value, (int, float) if kind is float else kind) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a {kind.__name__}")
    return value
