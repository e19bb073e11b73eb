"""Which versions of torch are supported is said in several places: they agree."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

from tests.torches import pinned_torch, recorded_on_pinned_torch
from tools.versions import matrix, page, table
from torchdevice._torch import core
from torchdevice.cli import doctor

ROOT = Path(__file__).parents[1]


def release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


@recorded_on_pinned_torch  # while the matrix is being run, the results of the other versions are still to come
def test_a_release_is_called_tested_if_a_command_has_run_the_tests_on_it() -> None:
    by_matrix = {release(result.torch) for result in table.load().values() if result.green}
    by_make_test = {release(pinned_torch()), release(table.ROWS[-1].torch)}
    assert set(core.TESTED_RELEASES) == by_matrix | by_make_test
    assert list(core.TESTED_RELEASES) == sorted(core.TESTED_RELEASES)


def test_the_rows_begin_with_the_oldest_release_that_can_be_installed() -> None:
    (oldest,) = re.findall(r'"torch>=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert tuple(map(int, oldest)) == release(table.ROWS[0].torch) == core.TESTED_RELEASES[0]


def test_the_newest_is_the_one_that_make_test_runs() -> None:
    (newest,) = re.findall(r"^NEWEST \?= (\S+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest == table.ROWS[-1].torch


def test_the_page_is_written_from_the_results() -> None:
    results = table.load()
    assert table.PAGE.read_text(encoding="utf-8") == page.page(results)


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    results = {
        version: table.Result(version, f"{version}+cu130", "3.11.7", "digest", "2026-01-01", {"doctor": True}, passed=3)
        for version in ("2.15.0", "2.9.1")
    }
    path = tmp_path / "results.json"
    table.save(results, path)
    assert table.load(path) == results
    assert list(table.load(path)) == ["2.9.1", "2.15.0"]
    assert page.page(table.load(path)) == page.page(results)
    assert all(result.green for result in results.values())
    results["2.9.1"].failed.append("tests/test_x.py::test_y")
    assert not results["2.9.1"].green
    assert "`tests/test_x.py::test_y`" in page.page(results)


def test_too_little_disk_and_a_missing_wheel_are_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "GIGABYTES", 10**9)
    with pytest.raises(
        matrix.VersionError, match=r"torch 2\.15\.0 needs about 1000000000 GB of disk, and \d+ GB are free"
    ):
        matrix.install(table.Row("2.15.0"))
    with pytest.raises(matrix.VersionError, match=r"it cannot be done .ERROR: no such thing"):
        matrix._run(["sh", "-c", "echo ERROR: no such thing >&2; exit 1"], "it cannot be done")


def test_the_reason_of_a_skip_is_the_one_that_was_given() -> None:
    one = ElementTree.fromstring('<skipped message="needs Chromium">test_x.py:3: needs Chromium</skipped>')
    file = ElementTree.fromstring(
        """<skipped message="collection skipped">('t.py', 10, "Skipped: could not import 'mlx'")</skipped>"""
    )
    assert [matrix._reason(skip) for skip in (one, file)] == ["needs Chromium", "could not import 'mlx'"]


@pytest.mark.parametrize(
    ("version", "status", "said"),
    [
        ("2.16.0.dev20270101", doctor.WARN, "not tested with this version; tested: 2.9, "),
        ("2.8.0", doctor.FAIL, ""),
        ("2.15.0+cu132", doctor.OK, ""),
    ],
)
def test_doctor_says_what_was_tested(version: str, status: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    (check,) = doctor.torch_build()
    assert check.status == status
    assert said in check.detail
    assert status is doctor.OK or check.fix
