"""How figures of child processes reach the process that reports: one small file a child, in a folder of the run.

Knows files and figures; who writes, who reads and when is `supervised`'s business.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from torchdevice.events import Changed, Fallback, FallbackTotals, Redirect, Simulated, Site
from torchdevice.reporting.counts import Counts, Profile, Timed

RUN = "TORCHDEVICE_RUN"  # the variable with the folder; it exists while a process of the run is there to report

_BY_NAME = {kind.__name__: kind for kind in (Redirect, Changed, Simulated, Fallback)}


def new_folder() -> str:
    """A name for a run's folder. The first process that imports torch makes it, not whoever starts the run."""
    return os.path.join(tempfile.gettempdir(), f"torchdevice-{os.urandom(8).hex()}")


def claim(folder: Path) -> bool:
    """Whether the caller is the first of the run: that one makes the folder, and reports."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def write(folder: Path, counts: Counts) -> None:
    """Leave this process's figures. A reader never sees half a file; a process id that comes again adds a file."""
    name = f"{os.getpid()}-{os.urandom(4).hex()}"
    unfinished = folder / f"{name}.part"
    unfinished.write_text(json.dumps(_as_data(counts)), encoding="utf-8")
    unfinished.replace(folder / f"{name}.json")


def read(folder: Path) -> Counts:
    """The figures left so far, added up; no process has left any: none."""
    whole = Counts(processes=0)
    for path in sorted(folder.glob("*.json")):
        whole += _from_data(json.loads(path.read_text(encoding="utf-8")))
    return whole


def remove(folder: Path) -> None:
    """End of the run. A child that still writes loses: it sees no folder and reports by itself."""
    shutil.rmtree(folder, ignore_errors=True)


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
        },
    }


def _from_data(data: dict[str, Any]) -> Counts:
    profile = data["profile"]
    return Counts(
        dict(map(_read_record, data["records"])),
        {fallback: FallbackTotals(*figures) for fallback, figures in map(_read_record, data["fallbacks"])},
        data["seconds"],
        profile
        and Profile(
            {(name, device): Timed(*figures) for name, device, figures in profile["operators"]},
            {Site(file, line): Timed(*figures) for file, line, figures in profile["lines"]},
            profile["seconds"],
            profile["operators_missing"],
        ),
    )


def _record(record: Any, figures: Any) -> list[Any]:
    return [type(record).__name__, dataclasses.asdict(record), figures]


def _read_record(row: list[Any]) -> tuple[Any, Any]:
    name, fields, figures = row
    fields["site"] = Site(**fields["site"])
    if "dtypes" in fields:
        fields["dtypes"] = tuple(fields["dtypes"])
    return _BY_NAME[name](**fields), figures
