"""Which torch the tests run on: the pinned one of constraints.txt, or another from the matrix."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

# Read when tests are collected: while a session is active it may be answered.
BUILT_FOR_CUDA = torch.version.cuda
ROOT = Path(__file__).parents[1]


def pinned_torch() -> str:
    """The version in constraints.txt: the one that recorded data and generated pages were made with."""
    found = re.search(r"^torch==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return found[1]


def on_pinned_torch() -> bool:
    """Whether this is the build that the recorded data come from: another build has other names."""
    return torch.__version__.partition("+")[0] == pinned_torch() and torch.version.cuda is None


recorded_on_pinned_torch = pytest.mark.skipif(
    not on_pinned_torch(), reason=f"compares with what was recorded on torch {pinned_torch()}, built without CUDA"
)
