"""The measurements, shipped in `data`, and the notes: shipped ones, which the user's notes override.

Measurements are grouped, because most names have the same result: `outcomes ability by` → namespace → last parts of
names. Outcomes are first letters, for the CPU, MPS and CUDA. The ability is that of plain torch. Two more groups have
the same form: reasons why a name cannot be run, and operators that did not run on MPS. `tools.catalog.results` writes
the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from torchdevice.catalog.measured import HOSTS, OUTCOMES, Measured
from torchdevice.config import data_folder
from torchdevice.errors import ConfigError, explain_error

DATA = Path(__file__).parent / "data"
MEASURED = DATA / "measured.json"
NOTES = DATA / "notes.json"
CAN, CANNOT = "can", "cannot"
_BY_LETTER = {outcome[0]: outcome for outcome in OUTCOMES}


class Equivalent(NamedTuple):
    """An MLX expression that gave the same values, and its coverage: `exact`, `mapped`, `partial` or `none`."""

    expression: str = ""
    confidence: str = "none"


@dataclass
class Results:
    """All measurements for one torch version. `mlx` is keyed by the name of torch's function."""

    torch: str = ""
    measured: dict[str, Measured] = field(default_factory=dict)
    mlx: dict[str, Equivalent] = field(default_factory=dict)


def load_results(path: Path = MEASURED) -> Results:
    """The measurements of the last `make catalog`."""
    data = json.loads(path.read_text(encoding="utf-8"))
    reasons = {name: reason for reason, groups in data["reasons"].items() for name in _names(groups)}
    elsewhere = {name: tuple(ops.split(" ")) for ops, groups in data["elsewhere"].items() for name in _names(groups)}
    measured = {}
    for code, groups in data["rows"].items():
        letters, ability, by = code.split(" ")
        outcomes = {host: _BY_LETTER[letter] for host, letter in zip(HOSTS, letters, strict=True)}
        for name in _names(groups):
            why = data["why"].get(name, {})
            measured[name] = Measured(by, ability == CAN, outcomes, why, reasons.get(name, ""), elsewhere.get(name, ()))
    mlx = {
        name: Equivalent(expression, confidence)
        for confidence, pairs in data["mlx"].items()
        for name, expression in pairs.items()
    }
    return Results(data["torch"], measured, mlx)


def _names(groups: dict[str, str]) -> Iterator[str]:
    for owner, names in groups.items():
        yield from (f"{owner}.{last}" for last in names.split(" "))


def shipped_notes() -> dict[str, str]:
    """The shipped notes by name."""
    return dict(json.loads(NOTES.read_text(encoding="utf-8")))


def notes_path() -> Path:
    """The path of this user's notes."""
    return data_folder() / "catalog-notes.json"


def load_notes() -> dict[str, str]:
    """The shipped notes, overridden by the user's. An empty note hides a shipped one."""
    return {name: text for name, text in (shipped_notes() | _user_notes()).items() if text}


def add_note(name: str, text: str) -> Path:
    """Store a note of the user; an empty one removes it."""
    notes = _user_notes() | {name: text}
    if not text and name not in shipped_notes():
        del notes[name]
    path = notes_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(dict(sorted(notes.items())), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    fresh.replace(path)
    return path


def parse_notes(text: str) -> dict[str, str]:
    """Notes by name. Raises ValueError for any other content."""
    try:
        notes = json.loads(text)
    except RecursionError as error:
        raise ValueError(f"no notes: {error}") from error
    if not isinstance(notes, dict) or not all(isinstance(note, str) for note in notes.values()):
        raise ValueError("no texts by name")
    return notes


def _user_notes() -> dict[str, str]:
    path = notes_path()
    try:
        return parse_notes(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigError(
            explain_error(
                f"The notes in {path} were requested",
                f"they cannot be read ({error}), so nothing was changed",
                "repair the file or remove it",
            )
        ) from error
