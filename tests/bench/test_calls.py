"""Calls must not become dearer: instructions counted by callgrind, against the committed baseline."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path

import pytest
import torch

from torchdevice.bench.calls import QUESTIONS, count_instructions

# The largest ratios of several runs, with environments of different sizes: the heap is not the same in each.
BASELINE = Path(__file__).with_name("baseline.json")
TOLERATED = 1.05
# A redirected call finds its place by the address of code, so the dictionary's work varies from run to run.
TOLERATED_WHERE_REDIRECTED = 1.15


def versions() -> dict[str, str]:
    return {"python": ".".join(platform.python_version_tuple()[:2]), "torch": torch.__version__.partition("+")[0]}


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed (apt install valgrind)")
def test_no_call_is_dearer_than_before() -> None:
    """Ratios depend on torch and Python: for versions without a baseline only the limits hold."""
    counts = count_instructions(("plain", "active"))
    ratios = {name: round(counts["active"][name] / counts["plain"][name], 3) for name in counts["plain"]}
    baseline = json.loads(BASELINE.read_text())
    known = baseline["ratios"] if baseline["versions"] == versions() else {}
    dear = {}
    for question in QUESTIONS:
        name = question.statement
        tolerated = TOLERATED_WHERE_REDIRECTED if question.limit is None else TOLERATED
        allowed = min(known.get(name, 99.0) * tolerated, (question.limit or 99.0) + 0.005)
        if ratios[name] > allowed:
            dear[name] = f"{ratios[name]} instead of at most {allowed:.3f}"
    assert not dear, f"{dear}\nIf that is meant, write this to {BASELINE.name}: {json.dumps(ratios)}"
