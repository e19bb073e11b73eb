"""How counts of child processes reach the process that reports: one small file a child, in a folder of the run.

Knows files and records; who writes, who reads and when is `supervised`'s business.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from pathlib import Path

from torchdevice.events import Site
from torchdevice.reporting.collect import KINDS, Record, Totals, merged

RUN = "TORCHDEVICE_RUN"  # the variable with the folder; it exists while a process of the run is there to report

_BY_NAME = {kind.__name__: kind for kind in KINDS}


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


def write(folder: Path, totals: Totals) -> None:
    """Leave this process's counts. A reader never sees half a file."""
    rows = [[type(record).__name__, dataclasses.asdict(record), calls] for record, calls in totals.items()]
    unfinished = folder / f"{os.getpid()}.part"
    unfinished.write_text(json.dumps(rows), encoding="utf-8")
    unfinished.replace(folder / f"{os.getpid()}.json")


def read(folder: Path) -> tuple[dict[Record, int], int]:
    """The counts left so far, and by how many processes."""
    parts = [_totals(path) for path in sorted(folder.glob("*.json"))]
    return merged(*parts), len(parts)


def remove(folder: Path) -> None:
    """End of the run. A child that still writes loses: it sees no folder and reports by itself."""
    shutil.rmtree(folder, ignore_errors=True)


def _totals(path: Path) -> dict[Record, int]:
    totals = {}
    for name, fields, calls in json.loads(path.read_text(encoding="utf-8")):
        site = Site(**fields.pop("site"))
        totals[_BY_NAME[name](**fields, site=site)] = calls
    return totals
