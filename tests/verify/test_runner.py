"""A check that crashes or hangs costs itself alone, and an interrupted run goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.verify import stub
from tests.verify.records import MACHINE
from torchdevice.errors import TorchDeviceError
from torchdevice.verify import runner
from torchdevice.verify.findings import AGREES, CRASHED, HUNG, PLAIN, Finding
from torchdevice.verify.parts import Part
from torchdevice.verify.record import Record, Stage

pytestmark = pytest.mark.processes


def command(scenario: str, log: Path) -> tuple[str, ...]:
    return (sys.executable, str(Path(stub.__file__)), scenario, str(log))


def explore(scenario: str, log: Path, limit: float = 60, seconds: float = 60) -> list[Finding]:
    part = Part("operators", "", "", seconds=limit)
    found = runner.explore(part, PLAIN, "", set(), seconds, command(scenario, log))
    return [each for each in found if isinstance(each, Finding)]


def statuses(found: list[Finding]) -> dict[str, str]:
    return {finding.check: finding.status for finding in found}


def starts(log: Path) -> list[list[str]]:
    """The checks that were done when each process began."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


ALL = dict.fromkeys(stub.NAMES, AGREES)


@pytest.mark.parametrize(
    ("scenario", "expected", "detail"),
    [
        ("crash", ALL | {"second": CRASHED}, "signal 9"),
        ("exit", ALL | {"second": CRASHED}, "exit status 0"),
        ("hang", ALL | {"second": HUNG}, "did not end in 3 s"),
        ("late crash", ALL | {"second": CRASHED}, "after its end: signal 9"),
        ("late hang", ALL | {"second": HUNG}, "after its end: did not end in 3 s"),
    ],
)
def test_a_check_that_ends_its_process_costs_itself(
    scenario: str, expected: dict[str, str], detail: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    found = explore(scenario, log, limit=3 if "hang" in scenario else 60)
    assert statuses(found) == expected
    assert [finding.detail for finding in found if finding.status != AGREES] == [detail]
    assert starts(log) == [[], ["first", "second"]]


def test_a_process_whose_device_is_unusable_is_replaced(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert statuses(explore("unusable", log)) == ALL
    assert starts(log) == [[], ["first", "second"]]


def test_a_part_that_cannot_start_is_one_finding_without_paths(tmp_path: Path) -> None:
    (found,) = explore("no start", tmp_path / "log")
    told = "exit status 1: ModuleNotFoundError: No module named 'torch' in <path>"
    assert (found.check, found.status, found.detail) == (runner.START, CRASHED, told)


def test_a_run_ends_with_its_time_and_goes_on_later(tmp_path: Path) -> None:
    log = tmp_path / "log"
    parts = (Part("operators", "", "", share=1.0),)
    record = Record(MACHINE, minutes=4 / 60)
    saved: list[Record] = []
    first = runner.run(record, saved.append, command=command("slow", log), parts=parts)
    assert statuses(list(first.findings)) == dict.fromkeys(("first", "second", "third"), AGREES)
    assert first.stage("operators", PLAIN).checks == len(stub.NAMES)
    assert saved[-1] == first
    second = runner.run(first, saved.append, command=command("right", log), parts=parts)
    assert statuses(list(second.findings)) == ALL
    assert starts(log) == [[], ["first", "second", "third"]]
    assert runner.run(second, saved.append, command=command("right", log), parts=parts) == second
    assert len(starts(log)) == 2, "a complete run starts nothing"


def test_a_part_that_can_start_now_forgets_that_it_could_not(tmp_path: Path) -> None:
    parts = (Part("operators", "", ""),)
    failed = Finding("operators", PLAIN, runner.START, CRASHED, "exit status 1")
    record = Record(MACHINE, 1.0, findings=(failed,))
    found = runner.run(record, lambda now: None, command=command("right", tmp_path / "log"), parts=parts)
    assert statuses(list(found.findings)) == ALL


def test_a_machine_that_cannot_be_described_is_an_error_with_a_hint(tmp_path: Path) -> None:
    described = runner.describe_machine("", command(json.dumps(MACHINE), tmp_path / "log"))
    assert described == MACHINE
    with pytest.raises(TorchDeviceError, match=r"(?s)No module named 'torch'.*Hint: torchdevice doctor"):
        runner.describe_machine("", command("no start", tmp_path / "log"))


def test_the_environment_of_children_does_not_change_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    removed = ("TORCH_ALLOW_REDIRECTS", "PYTORCH_ENABLE_MPS_FALLBACK")
    for name in ("TORCHDEVICE", "TORCHDEVICE_VIRTUAL", *removed):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TORCHDEVICE_CACHE", "/somewhere")
    given = runner._environment()
    assert not given.keys() & set(removed)
    assert {name for name in given if name.startswith("TORCHDEVICE")} == {"TORCHDEVICE_CACHE"}


def test_stages_are_replaced() -> None:
    record = Record(MACHINE, 1.0).with_stage(Stage("steps", PLAIN, 3, 1.0)).with_stage(Stage("steps", PLAIN, 3, 2.0))
    assert record.stages == (Stage("steps", PLAIN, 3, 2.0),)
