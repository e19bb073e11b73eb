"""The rows of the installed torch, made once for all tests of the catalogue."""

from __future__ import annotations

import pytest

from torchdevice.catalog.entries import Entry
from torchdevice.cli.catalog import catalogue


@pytest.fixture(scope="session")
def entries() -> list[Entry]:
    """Every row."""
    return catalogue()[0]
