"""On a virtual mps with errors that were put in on purpose, every error is found, and nothing else."""

from __future__ import annotations

import functools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.verify import planted
from torchdevice.verify import runner
from torchdevice.verify.findings import AGREES, BAD, PLAIN, TRANSLATED, Finding
from torchdevice.verify.parts import PARTS, part_named
from torchdevice.verify.record import Record
from torchdevice.verify.summary import disagreements

COMMAND = (sys.executable, "-W", "ignore", str(Path(planted.__file__)))
# Each part in one of its ways: `answers` and `steps` are the same questions in the others.
STAGES = {part.name: PLAIN if PLAIN in part.ways else TRANSLATED for part in PARTS} | {"steps": TRANSLATED}
SECONDS = 300.0
MEASURED = ("cost of a fallback", "MLX against the CPU")  # nothing is planted there, and measuring takes seconds


def explore(part: str) -> list[Finding]:
    found = runner.explore(part_named(part), STAGES[part], "mps:real", set(MEASURED), SECONDS, COMMAND)
    return [each for each in found if isinstance(each, Finding)]


@functools.cache
def everything() -> dict[str, list[Finding]]:
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(STAGES, pool.map(explore, STAGES), strict=True))


def bad(part: str) -> dict[str, str]:
    return {finding.check: finding.detail for finding in everything()[part] if finding.status in BAD}


pytestmark = [pytest.mark.processes, pytest.mark.long]


def test_a_false_prediction_and_a_missing_one_are_named() -> None:
    record = Record({}, 1.0, findings=tuple(everything()["refusals"]))
    told = [each.text for each in disagreements(record)]
    dtypes = "bool, complex64, float16, float32, int64"
    without_kernel = "predicted: refused (native_functions.yaml has no kernel); seen: runs"
    assert told == [
        f"{planted.ATAN} of {dtypes}: {without_kernel}",
        f"{planted.MODE} of bool, float16, float32, int64: predicted: runs; seen: refused",
    ]


def test_an_operator_with_wrong_values_is_named_and_no_other() -> None:
    assert bad("operators").keys() == {"sinh float32", "sinh float16"}
    assert "forward: Tensor-likes are not close" in bad("operators")["sinh float32"]
    right = [finding.check for finding in everything()["operators"] if finding.status == AGREES]
    assert sorted(right) == ["atan float16", "atan float32", "erf float16", "erf float32"]


def test_a_fallback_with_wrong_values_is_named() -> None:
    assert bad("fallbacks").keys() == {"mode float32"}
    assert "forward" in bad("fallbacks")["mode float32"]


def test_wrong_answers_are_named() -> None:
    assert bad("answers").keys() == {"allocated memory follows tensors", "events measure time"}
    assert bad("answers")["allocated memory follows tensors"].endswith("raised the figure by 0")
    assert "-1.0000 ms" in bad("answers")["events measure time"]


def test_a_known_bug_is_present_and_the_others_are_absent() -> None:
    states = {finding.check: finding.figures["state"] for finding in everything()["wrong values"]}
    assert {name for name, state in states.items() if state == "present"} == {"argmax"}
    assert len(states) > 10


def test_incoherent_devices_are_named() -> None:
    assert bad("coherence") == {"save and load": "map_location=None: cpu"}


def test_a_step_with_other_losses_is_named() -> None:
    assert bad("steps").keys() == {"losses"}
    assert "50.00%" in bad("steps")["losses"]
