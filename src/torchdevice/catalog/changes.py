"""The differences between two catalogues: added and removed names, changed signatures and statuses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

WATCHED = ("kind", "signature", "device_parameters", "treatment", "status")


@dataclass(frozen=True)
class Changes:
    """From an old catalogue to a new one. `changed`: name → field → (old, new)."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: dict[str, dict[str, tuple[Any, Any]]]

    def lines(self) -> list[str]:
        """As text."""
        text = [f"{len(self.added)} added, {len(self.removed)} removed, {len(self.changed)} changed"]
        text += [f"+ {name}" for name in self.added]
        text += [f"- {name}" for name in self.removed]
        for name, fields in self.changed.items():
            text += [f"~ {name}: {field}: {old} → {new}" for field, (old, new) in fields.items()]
        return text


def read_rows(text: str) -> list[dict[str, Any]]:
    """The rows in the output of `torchdevice catalog --json`. Raises ValueError for any other text."""
    try:
        rows = json.loads(text)["entries"]
        if all(isinstance(row["name"], str) and isinstance(row, dict) for row in rows):
            return list(rows)
    except (TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"no rows: {error}") from error
    raise ValueError("its rows have no names")


def changes(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Changes:
    """Compare two lists of rows as `torchdevice catalog --json` prints them."""
    before, after = ({row["name"]: row for row in rows} for rows in (old, new))
    changed = {}
    for name in before.keys() & after.keys():
        fields = {
            field: (before[name].get(field), after[name].get(field))
            for field in WATCHED
            if _plain(before[name].get(field)) != _plain(after[name].get(field))
        }
        if fields:
            changed[name] = fields
    return Changes(
        tuple(sorted(after.keys() - before.keys())),
        tuple(sorted(before.keys() - after.keys())),
        dict(sorted(changed.items())),
    )


def _plain(value: Any) -> Any:
    """Converts tuples to lists, because JSON has only lists."""
    return list(value) if isinstance(value, tuple) else value
