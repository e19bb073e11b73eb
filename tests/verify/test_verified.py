"""Files that people attach to issues: what they change in the tables, and the row of the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.verify.records import MACHINE, RECORD
from tools.mac_reports import page
from tools.verified import __main__ as command
from tools.verified import seen
from tools.verified.changes import changes
from torchdevice.verify import record
from torchdevice.verify.findings import DIFFERS, PLAIN, Finding

TABLES = "src/torchdevice/virtual/supported.py"
SEEN = "(seen on Apple M2, macOS 15.1, torch 2.13.0)"


def test_every_disagreement_names_its_table_and_where_it_was_seen() -> None:
    lacking = {"operator": "aten::mode", "predicted": "refused", "seen": "runs", "reason": "native_functions.yaml has"}
    denied = {"operator": "aten::bincount", "predicted": "refused", "seen": "runs", "reason": "common_mps.py lists it"}
    refused = {"operator": "aten::sort", "predicted": "runs", "seen": "refused", "reason": ""}
    rows = [{**row, "dtype": "int64"} for row in (lacking, denied, refused)]
    found = replace(
        RECORD,
        findings=(
            Finding("refusals", PLAIN, "x", DIFFERS, "", {"disagreements": rows}),
            Finding("coherence", PLAIN, "dtype float64", DIFFERS, "predicted: mps lacks it; seen: it has it"),
            Finding("wrong values", PLAIN, "argmax", DIFFERS, "present", {"state": "present"}),
        ),
    )
    assert list(changes(found)) == [
        f"{TABLES}, denied_dtypes: aten::bincount does not refuse int64 [common_mps.py lists it] {SEEN}",
        f"{TABLES}, MPS_EXTRA: add mode, which runs (int64) {SEEN}",
        f"{TABLES}: aten::sort refuses int64, and no table says so {SEEN}",
        f"src/torchdevice/policy/dtypes.py: float64: predicted: mps lacks it; seen: it has it {SEEN}",
        f"tests/mac_reports/reports.json: argmax is present {SEEN}",
    ]


def test_another_device_says_nothing_about_the_bugs_of_mps() -> None:
    assert any("reports.json" in line for line in changes(RECORD))
    there = replace(RECORD, machine={**MACHINE, "device": "cuda"})
    assert not any("reports.json" in line for line in changes(there))


def test_a_newer_file_of_the_same_device_and_torch_replaces_the_row() -> None:
    row = seen.row_of(RECORD)
    newer, other = replace(row, date="2027-01-01"), replace(row, torch="2.14.0")
    assert seen.merged([row], [other, newer]) == [newer, other]
    assert seen.merged([newer], [row]) == [newer]
    assert row.checks == {"agrees": 6, "differs": 5, "skipped": 1, "crashed": 1}
    assert len(row.disagreements) == 5


def test_the_section_says_none_until_there_is_a_file() -> None:
    assert list(seen.section([]))[-1] == "Seen on a real device: none yet."
    row = replace(seen.row_of(RECORD), name="M2|<b>")
    assert list(seen.section([row]))[-1] == (
        "| M2\\|&lt;b> (mps) | macOS 15.1 | 2.13.0 | 2026-11-17 | 6 agree, 5 differ, 1 skipped, 1 crashed | 5 |"
    )


def test_rows_come_back_from_their_file(tmp_path: Path) -> None:
    seen.save([seen.row_of(RECORD)], tmp_path / "seen.json")
    assert seen.load(tmp_path / "seen.json") == [seen.row_of(RECORD)]
    assert seen.load(tmp_path / "none.json") == []


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> list[list[seen.Seen]]:
    """What the command would keep."""
    rows: list[list[seen.Seen]] = []
    monkeypatch.setattr(seen, "save", rows.append)
    monkeypatch.setattr(seen, "load", list)
    monkeypatch.setattr(command, "write_page", lambda: None)
    return rows


def test_a_real_device_is_kept_and_a_virtual_one_is_not(
    tmp_path: Path, kept: list[list[seen.Seen]], capsys: pytest.CaptureFixture[str]
) -> None:
    real, virtual = tmp_path / "real.json", tmp_path / "virtual.json"
    record.write(real, RECORD)
    record.write(virtual, replace(RECORD, machine={**MACHINE, "virtual": "mps:real"}))
    assert command.main([str(virtual)]) == 0
    assert "is a virtual device" in capsys.readouterr().out
    assert kept == []
    assert command.main([str(real)]) == 0
    assert kept == [[seen.row_of(RECORD)]]
    assert "add mode, which runs" not in capsys.readouterr().out, "its reason is not that of a missing kernel"


def test_a_file_that_is_none_changes_nothing(
    tmp_path: Path, kept: list[list[seen.Seen]], capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{}", encoding="utf-8")
    assert command.main([str(bad)]) == 1
    assert "its schema is None" in capsys.readouterr().err
    assert command.main([]) == 2
    assert kept == []


def test_the_page_has_the_section() -> None:
    assert "\n".join(seen.section(seen.load())) in page.text()
