"""Apply replacements and undo them. Knows nothing of torch: owners, names and objects, no more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

_ABSENT = object()


@dataclass(frozen=True)
class Replacement:
    """Put `value` at `owner.name`; `path` is how people call that place."""

    path: str
    owner: Any
    name: str
    value: Any


@dataclass
class Applied:
    """What is in place, and the way back."""

    _undo: list[tuple[Replacement, Any]] = field(default_factory=list)
    originals: dict[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """The places that are replaced."""
        return tuple(replacement.path for replacement, _ in self._undo)

    def undo(self) -> tuple[str, ...]:
        """Restore everything that is still ours, last first; the paths that somebody else has replaced since."""
        lost = []
        while self._undo:
            replacement, before = self._undo.pop()
            if vars(replacement.owner).get(replacement.name, _ABSENT) is not replacement.value:
                lost.append(replacement.path)
            elif before is _ABSENT:
                delattr(replacement.owner, replacement.name)
            else:
                setattr(replacement.owner, replacement.name, before)
        return tuple(lost)


def apply(replacements: Iterable[Replacement]) -> Applied:
    """Put all replacements in place, or none: an error on the way takes back what was done."""
    applied = Applied()
    try:
        for replacement in replacements:
            # The owner's own entry, not what getattr finds: an inherited attribute is restored by deleting ours,
            # and a staticmethod comes back as the staticmethod that it was.
            before = vars(replacement.owner).get(replacement.name, _ABSENT)
            found = getattr(replacement.owner, replacement.name, None)
            setattr(replacement.owner, replacement.name, replacement.value)
            applied._undo.append((replacement, before))
            applied.originals.setdefault(replacement.path, found)  # a place replaced twice has one original
    except BaseException:
        applied.undo()
        raise
    return applied
