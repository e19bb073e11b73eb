"""Calls must not become dearer: instructions counted by callgrind, against the committed baseline."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path

import pytest
import torch

from tests.torches import recorded_on_pinned_torch
from torchdevice.bench.calls import QUESTIONS, count_instructions

# The largest ratios of several runs, with environments of different sizes: the heap is not the same in each.
BASELINE = Path(__file__).with_name("baseline.json")
TOLERATED = 1.05
ATTEMPTS = 3
CANNOT_READ = "readdwarf"  # what valgrind 3.19 says of torch's library for ARM, before anything runs
# A redirected call finds its place by the address of code, so the dictionary's work varies from run to run.
TOLERATED_WHERE_REDIRECTED = 1.15


def versions() -> dict[str, str]:
    return {"python": ".".join(platform.python_version_tuple()[:2]), "torch": torch.__version__.partition("+")[0]}


def too_dear(ratios: dict[str, float]) -> dict[str, str]:
    """What costs more than the limits or the baseline allow. Without a baseline for these versions, the limits hold."""
    baseline = json.loads(BASELINE.read_text())
    known = baseline["ratios"] if baseline["versions"] == versions() else {}
    dear = {}
    for question in QUESTIONS:
        name = question.statement
        tolerated = TOLERATED_WHERE_REDIRECTED if question.limit is None else TOLERATED
        allowed = min(known.get(name, 99.0) * tolerated, (question.limit or 99.0) + 0.005)
        if ratios[name] > allowed:
            dear[name] = f"{ratios[name]} instead of at most {allowed:.3f}"
    return dear


@recorded_on_pinned_torch
@pytest.mark.long
@pytest.mark.processes
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed (apt install valgrind)")
def test_no_call_is_dearer_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """An allocation takes 350 instructions more in one heap of many: what is too dear in another one too is dear."""
    least: dict[str, float] = {}
    for attempt in range(ATTEMPTS):
        monkeypatch.setenv("ANOTHER_HEAP", "x" * 700 * attempt)
        try:
            counts = count_instructions(("plain", "active"))
        except SystemExit as error:
            if CANNOT_READ not in str(error):
                raise
            pytest.skip(str(error))
        ratios = {name: round(counts["active"][name] / counts["plain"][name], 3) for name in counts["plain"]}
        least = {name: min(ratio, least.get(name, ratio)) for name, ratio in ratios.items()}
        if not (dear := too_dear(least)):
            return
    pytest.fail(f"{dear}\nIf that is meant, write this to {BASELINE.name}: {json.dumps(least)}")


def test_the_baseline_would_fail() -> None:
    limits = {question.statement: (question.limit or 0.0) + 0.1 for question in QUESTIONS if question.limit}
    dear = too_dear({question.statement: limits.get(question.statement, 99.0) for question in QUESTIONS})
    assert dear.keys() >= limits.keys()
