"""The rows of the installed torch, made once for all tests of the catalogue."""

from __future__ import annotations

import pytest
import torch.distributed.tensor.device_mesh  # noqa: F401 - first imported while active it would keep what it found then

from torchdevice.catalog.entries import Entry
from torchdevice.cli.catalog import catalogue


@pytest.fixture(scope="session")
def entries() -> list[Entry]:
    """Every row."""
    return catalogue()[0]
