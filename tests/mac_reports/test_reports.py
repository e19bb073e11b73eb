"""Every tenth report runs here; all of them by `make mac-reports`, which writes docs/mac.md."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.torches import recorded_on_pinned_torch
from tests.virtual.harness import run_python
from tools.mac_reports import checks, page, run, table, worker
from tools.mac_reports.table import DATA, KINDS, Outcome, Report

AT_LEAST = 120  # reports
EVERY = 10
SENTENCE = "The operator 'aten::x' is not current implemented for the MPS device."
REPORT = Report("x", "https://github.com/a/b/issues/1", "2.7", KINDS[0], "x", SENTENCE, "no")


@pytest.mark.long
@recorded_on_pinned_torch
def test_every_tenth_program_does_what_was_kept() -> None:
    names = [report.id for report in table.reports()[::EVERY]]
    kept = table.load().outcomes
    found = run.run(names)
    assert {name: (bool(each.plain), bool(each.ours)) for name, each in found.items()} == {
        name: (bool(kept[name].plain), bool(kept[name].ours)) for name in names
    }, found


def test_every_row_has_all_fields_a_link_of_its_own_and_a_program() -> None:
    reports = table.reports()
    assert len(reports) >= AT_LEAST
    for rows in (reports, table.wrong_values()):
        for row in rows:
            assert all(isinstance(value, str) and value for value in asdict(row).values()), row
            assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", row.link), row.link
        assert len({row.link for row in rows}) == len({row.id for row in rows}) == len(rows)
    assert {report.kind for report in reports} <= set(KINDS)
    assert {path.stem for path in (DATA / "programs").glob("*.py")} == {report.id for report in reports}


def test_programs_are_short_know_torch_only_and_end_in_a_check() -> None:
    for report in table.reports():
        text = report.program.read_text(encoding="utf-8")
        assert 3 <= len(text.splitlines()) <= 20, report.id
        modules = set(re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE))
        assert modules <= {"torch", "numpy", "io", "os", "time", "tempfile", "argparse", "warnings"}, report.id
        assert re.search(r"\bassert\b|assert_close|assert_allclose|print\(\"ok\"", text), report.id
        assert re.search(r"mps|cuda", text), f"{report.id}: `torchdevice run` would choose another policy"


def test_all_reports_were_measured_and_every_reason_is_needed() -> None:
    outcomes = table.load().outcomes
    assert list(outcomes) == [report.id for report in table.reports()]
    assert run.surprises(outcomes, table.reasons()) == []


def test_the_page_is_written_from_what_was_kept() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.text()


@pytest.mark.processes
@recorded_on_pinned_torch
def test_kernels_are_compared_as_they_were_kept() -> None:
    code = """if True:
        from tools.mac_reports.checks import *
        print([(agreement(check, found), bool(found.ours)) for check, found in zip(checks(), measure())])
    """
    done = run_python("-W", "ignore", "-c", code)
    pairs = list(zip(checks.checks(), checks.kept(), strict=True))
    kept = [(checks.agreement(check, found), bool(found.ours)) for check, found in pairs]
    assert done.stdout.splitlines()[-1:] == [str(kept)], done.stderr


def test_what_only_the_sources_refuse_runs() -> None:
    pairs = zip(checks.checks(), checks.kept(), strict=True)
    simulated = [found for check, found in pairs if checks.is_simulated(check, found)]
    assert len(simulated) > 20
    assert [found.ours for found in simulated if found.ours] == []


def test_every_check_of_a_kernel_has_its_place_and_a_call_of_its_own() -> None:
    rows = checks.checks()
    for row in rows:
        assert re.search(row.message, checks.example(row.message)), row
        assert re.fullmatch(r"[0-9a-f]{40}", row.commit), row
        assert row.operator.startswith("aten::")
        assert row.condition.endswith(".")
        assert "|" not in row.condition
    assert len({row.call for row in rows}) == len(rows) == len(checks.kept())


def test_words_are_compared_without_their_quotes() -> None:
    told = "NotImplementedError: The operator ‘aten::x’ is not currently implemented for the MPS device. If you want …"
    assert page.without_us(REPORT, Outcome(told, "")) == page.SAME
    assert page.without_us(REPORT, Outcome(told.replace("aten::x", "aten::y"), "")) == page.OTHER
    assert page.without_us(REPORT, Outcome("", "")) == page.RUNS


def test_what_nobody_expected_is_told() -> None:
    outcomes = {"good": Outcome("", ""), "bad": Outcome("", "ValueError: no"), "known": Outcome("", "ValueError: no")}
    assert run.surprises(outcomes, {"known": "why"}) == ["bad: ValueError: no"]
    assert run.surprises(outcomes, {"known": "why", "bad": "why", "good": "why"}) == ["good runs, and should not: why"]


@pytest.mark.processes
def test_a_crash_and_a_hang_cost_one_program_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {
        "crashes": ("import os; os.kill(os.getpid(), 9)", "crashed with signal 9"),
        "raises": ("raise ValueError('no\\nmore')", "ValueError: no"),
        "ends": ("raise SystemExit", ""),
        "hangs": ("import time; time.sleep(60)", "took more than 2 s"),
    }
    monkeypatch.setattr(worker, "DATA", tmp_path)
    monkeypatch.setattr(worker, "SECONDS", 2)
    tmp_path.joinpath("programs").mkdir()
    for name, (code, told) in programs.items():
        tmp_path.joinpath("programs", f"{name}.py").write_text(code, encoding="utf-8")
        assert worker.outcome(name) == told
