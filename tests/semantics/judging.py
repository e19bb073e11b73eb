"""Compares what a program returned in a mode with what was wanted."""

from __future__ import annotations

import json
import math
from pathlib import Path


def read(file: Path) -> dict[str, dict[str, object]]:
    """The lines of a runner, by the names of the programs."""
    return {row["name"]: row for row in map(json.loads, file.read_text(encoding="utf-8").splitlines())}


def same(wanted: object, got: object, tolerance: float) -> bool:
    """Numbers with a point may differ by the tolerance, absolute or relative; all else is equal, with its type."""
    if isinstance(wanted, float) and isinstance(got, float):
        return wanted == got or (math.isnan(wanted) and math.isnan(got)) or _near(wanted, got, tolerance)
    if isinstance(wanted, list) and isinstance(got, list):
        return len(wanted) == len(got) and all(same(*pair, tolerance) for pair in zip(wanted, got, strict=True))
    if isinstance(wanted, dict) and isinstance(got, dict):
        return list(wanted) == list(got) and all(same(wanted[key], got[key], tolerance) for key in wanted)
    return type(wanted) is type(got) and wanted == got


def _near(wanted: float, got: float, tolerance: float) -> bool:
    return abs(wanted - got) <= tolerance * max(1.0, abs(wanted))


def difference(wanted: object, row: dict[str, object] | None, tolerance: float) -> str | None:
    """One line that says it, or None."""
    if row is None:
        return "did not come back: the process ended"
    if "raised" in row:
        return f"wanted {wanted}, raised {row['raised']}"
    return None if same(wanted, row["returned"], tolerance) else f"wanted {wanted}, got {row['returned']}"
