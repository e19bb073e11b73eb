"""The file of a run, its summary and its page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.verify.records import MACHINE, RECORD
from torchdevice.errors import ConfigError
from torchdevice.verify import page, record, summary
from torchdevice.verify.findings import Check, Differs, Skipped, in_one_line, perform
from torchdevice.verify.parts import PARTS, place_in_order


def test_a_record_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    record.write(path, RECORD)
    assert record.read(path) == RECORD
    assert record.resume(path, MACHINE, 3.0).findings == RECORD.findings


def test_a_new_file_is_a_new_record(tmp_path: Path) -> None:
    assert record.resume(tmp_path / "none.json", MACHINE, 8.0).findings == ()


@pytest.mark.parametrize("name", record.DECIDING)
def test_a_file_of_another_machine_is_not_continued(name: str, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    record.write(path, RECORD)
    with pytest.raises(ConfigError, match=f"(?s){name} .*Hint: name another file"):
        record.resume(path, {**MACHINE, name: "another"}, 8.0)


def spoiled(**changes: Any) -> dict[str, Any]:
    return {**RECORD.as_json(), **changes}


def with_figures(figures: dict[str, Any]) -> dict[str, Any]:
    return spoiled(findings=[{**RECORD.as_json()["findings"][0], "figures": figures}])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ([], "it is not an object"),
        (spoiled(schema=2), "its schema is 2, and this version reads 1"),
        (spoiled(machine={**MACHINE, "cores": "8"}), "machine.cores is missing or has a wrong type"),
        (spoiled(machine={**MACHINE, "user": "me"}), "machine.unknown fields: user"),
        (spoiled(findings=[{}]), "findings[0].part is missing or has a wrong type"),
        (spoiled(findings=[{**RECORD.as_json()["findings"][0], "status": "good"}]), "findings[0].status is 'good'"),
        (spoiled(findings=[{**RECORD.as_json()["findings"][0], "part": "parts"}]), "findings[0].part is 'parts'"),
        (with_figures({"disagreements": 3}), "findings[0].figures.disagreements is not a list"),
        (with_figures({"disagreements": [{}]}), "findings[0].figures.disagreements.operator is missing"),
        (spoiled(stages=[3]), "stages[0] is not an object"),
        (spoiled(stages={}), "stages is missing or has a wrong type"),
        (spoiled(findings=3), "findings is missing or has a wrong type"),
        (spoiled(more=1), "the file: unknown fields: more"),
        (spoiled(date=None), "date is missing or has a wrong type"),
    ],
)
def test_a_file_that_is_none_is_refused_with_the_reason(data: Any, told: str, tmp_path: Path) -> None:
    assert next(record.problems(data)).startswith(told)
    path = tmp_path / "found.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ConfigError):
        record.read(path)


def test_a_right_file_has_no_problems() -> None:
    assert list(record.problems(json.loads(json.dumps(RECORD.as_json())))) == []


def test_the_summary_names_every_disagreement_once() -> None:
    text = summary.as_text(RECORD)
    assert text.splitlines()[0].startswith("Apple M2 (mps), macOS 15.1 arm64, torch 2.13.0")
    assert "✗ coherence     1 agree, 1 differ\n" in text
    assert "– answers       not run yet\n" in text
    assert "step on a virtual device 1.10×" in text
    assert "✗ refusals      1 agree, 3 differ, 5 of 9 not run yet\n" in text
    assert text.partition("Disagreements: ")[2].splitlines() == [
        "5",
        "  coherence     views: the base: <b>values</b> differ",
        "  wrong values  argmax: present: argmax",
        "  refusals      aten::mode of float32, int64: predicted: refused; seen: runs [mode float32 and 1 more]",
        "  refusals      aten::sort of float32: predicted: runs; seen: refused [sort float32]",
        "  operators     sort float32: crashed: signal 6",
    ]


def test_a_record_without_disagreements_says_so() -> None:
    assert summary.as_text(replace(RECORD, findings=RECORD.findings[:1])).endswith("Disagreements: 0")


def test_the_page_has_every_check_and_escapes_what_devices_say() -> None:
    text = page.render(RECORD)
    assert "&lt;b&gt;values&lt;/b&gt;" in text
    assert "<b>values" not in text
    assert all(finding.title in text for finding in RECORD.findings)
    assert "Disagreements between prediction and device: 5" in text


def raising(error: Exception) -> Any:
    def run() -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (Differs("other values"), "differs", "other values"),
        (Skipped("no streams"), "skipped", "no streams"),
        (ValueError("first\nsecond"), "differs", "raised ValueError: first"),
        (OSError("cannot read /Users/jane doe/net.pt"), "differs", "raised OSError: cannot read <path>"),
    ],
)
def test_what_a_check_raises_is_its_result(error: Exception, status: str, detail: str) -> None:
    assert perform(Check("x", raising(error)))[:2] == (status, detail)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("at /home/jane/.cache/torch/kernel.cpp:31", "at <path>:31"),
        (r"C:\Users\jane\net.pt is missing", "<path> is missing"),
        ("~/models/net.pt", "<path>"),
        ("file:///home/jane/net.pt, path=/home/jane", "file://<path>, path=<path>"),
        ("aten::mode of float32: 3/4 samples and 1.5 / 2", "aten::mode of float32: 3/4 samples and 1.5 / 2"),
        ("https://github.com/pytorch/pytorch/issues/141287", "https://github.com/pytorch/pytorch/issues/141287"),
    ],
)
def test_paths_are_removed(text: str, kept: str) -> None:
    assert in_one_line(text) == kept


def test_a_shorter_run_is_a_sample_of_a_longer_one() -> None:
    names = [f"operator {number} float32" for number in range(100)]
    ordered = sorted(names, key=place_in_order)
    assert sorted(names[50:], key=place_in_order) == [name for name in ordered if name in names[50:]]
    assert ordered[:3] == ["operator 25 float32", "operator 37 float32", "operator 73 float32"]


def test_parts_have_names_of_their_own_and_share_the_time() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS)
    assert 0.5 < sum(part.share for part in PARTS) <= 1
