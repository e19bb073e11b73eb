"""The rows of the installed torch, made once for all tests of the catalogue."""

from __future__ import annotations

import pytest
import torch.distributed.tensor.device_mesh  # noqa: F401 - first imported while active it would keep what it found then

from tools.catalog import results, rows
from tools.catalog.results import Called
from torchdevice.catalog.entries import Entry


@pytest.fixture(scope="session")
def entries() -> list[Entry]:
    """Every row."""
    return rows.entries()


@pytest.fixture(scope="session")
def called() -> dict[str, Called]:
    """What was called for each name."""
    return results.load().called
