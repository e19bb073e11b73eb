"""The catalogue as the repository's pages have it: the shipped data and notes, none of this machine's user."""

from __future__ import annotations

from torchdevice.catalog.entries import Entry
from torchdevice.catalog.store import shipped_notes
from torchdevice.cli.catalog import catalogue


def entries() -> list[Entry]:
    """Every row of the installed torch."""
    return catalogue(shipped_notes())[0]
