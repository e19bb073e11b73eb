"""The measured results and the notes: two files in `data`, compact, made for diffs.

A row of results is `cpu mps cuda|plain|by|call`, the hosts by the first letter of their outcome; what failed has its
reason beside it. Results are written by `make catalog`, notes by `torchdevice catalog note`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchdevice.catalog.status import DIFFERS, HOSTS, NONE, PASSED, RAISED, Measured

DATA = Path(__file__).parent / "data"
RESULTS, NOTES = "results.json", "notes.json"
_LETTERS = {"p": PASSED, "d": DIFFERS, "r": RAISED, "n": NONE}


@dataclass
class Results:
    """Everything that was measured, for one torch. `mlx`: functions whose MLX equivalent gave the same values."""

    torch: str = ""
    measured: dict[str, Measured] = field(default_factory=dict)
    mlx: frozenset[str] = frozenset()


def load_results(folder: Path = DATA) -> Results:
    """What the last `make catalog` measured; empty if there was none."""
    path = folder / RESULTS
    if not path.exists():
        return Results()
    data = json.loads(path.read_text(encoding="utf-8"))
    rows = {name: _read(text, data["why"].get(name, {})) for name, text in data["rows"].items()}
    return Results(data["torch"], rows, frozenset(data["mlx"]))


def save_results(results: Results, folder: Path = DATA) -> None:
    """One line a name, sorted."""
    rows = {name: _written(measured) for name, measured in sorted(results.measured.items())}
    why = {name: measured.why for name, measured in sorted(results.measured.items()) if measured.why}
    data: dict[str, Any] = {"torch": results.torch, "mlx": sorted(results.mlx), "rows": rows, "why": why}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULTS).write_text(json.dumps(data, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def _written(measured: Measured) -> str:
    letters = "".join(measured.outcomes.get(host, NONE)[0] for host in HOSTS)
    return "|".join((letters, "y" if measured.plain else "n", measured.by, measured.call))


def _read(text: str, why: dict[str, str]) -> Measured:
    letters, plain, by, call = text.split("|", 3)
    outcomes = {host: _LETTERS[letter] for host, letter in zip(HOSTS, letters, strict=True)}
    return Measured(by, call, plain == "y", outcomes, why)


def load_notes(folder: Path = DATA) -> dict[str, str]:
    """Notes by name."""
    path = folder / NOTES
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def add_note(name: str, text: str, folder: Path = DATA) -> Path:
    """Write a note down; an empty one takes it away."""
    notes = load_notes(folder)
    if text:
        notes[name] = text
    else:
        notes.pop(name, None)
    path = folder / NOTES
    path.write_text(json.dumps(dict(sorted(notes.items())), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
