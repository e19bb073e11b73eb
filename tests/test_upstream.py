"""PyTorch's own tests on a virtual device: a selection that runs in a minute, and the page of all of them."""

from __future__ import annotations

import sys
import urllib.error
from pathlib import Path

import pytest

from tests.torches import recorded_on_pinned_torch
from tools.conformance.run import run_worker
from tools.upstream import archive, page, run, table
from tools.upstream.table import Run

AT_MOST = 100  # tests of the selection
# They take longer than all the others, or need a machine of their own.
LEFT_OUT = ("fuzz", "large", "overflow", "threads", "subprocess", "import", "oom", "memory", "assert_async", "lazy")


def selection() -> list[str]:
    """Tests of test_cuda.py that pass on a real GPU and on a virtual one."""
    results = table.load()
    both = set(results["real"]["test_cuda"].names["passed"]) & set(results["cuda"]["test_cuda"].names["passed"])
    quick = sorted(name for name in both if not any(word in name for word in LEFT_OUT))
    return quick[:: max(1, len(quick) // AT_MOST)]


def tests_of_pytorch() -> Path:
    try:
        return archive.tests()
    except urllib.error.URLError as error:
        pytest.skip(f"Debian's archive cannot be reached: {error.reason}")


@pytest.mark.long
@recorded_on_pinned_torch
def test_what_passed_once_passes() -> None:
    names = selection()
    assert len(names) >= AT_MOST
    rows = run_worker([*run.command(tests_of_pytorch(), "test_cuda", "cuda")], names)
    assert {row["op"]: row for row in rows if row["status"] != "passed"} == {}


@pytest.mark.processes
def test_a_crash_and_a_hang_cost_one_test_each(tmp_path: Path) -> None:
    (tmp_path / "test_three.py").write_text(
        "import os, unittest\n"
        "class TestThree(unittest.TestCase):\n"
        "    def test_crash(self): os.kill(os.getpid(), 11)\n"
        "    def test_fails(self): self.assertEqual(1, 2)\n"
        "    def test_passes(self): pass\n"
        "    @unittest.skip('why not')\n"
        "    def test_skipped(self): pass\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "tools.upstream.worker", str(tmp_path), "test_three", "real"]
    names = [f"TestThree.test_{name}" for name in ("crash", "fails", "passes", "skipped")]
    found = {row["op"].rpartition("_")[2]: row for row in run_worker(command, names)}
    assert {name: row["status"] for name, row in found.items()} == {
        "crash": "crashed",
        "fails": "failed",
        "passes": "passed",
        "skipped": "skipped",
    }
    assert found["fails"]["why"] == "AssertionError: 1 != 2"
    assert found["skipped"]["why"] == "why not"


def test_the_page_is_written_from_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = page.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", tmp_path / "upstream.md")
    page.write_page(table.load())
    assert page.PAGE.read_text(encoding="utf-8") == before


def test_every_reason_is_one_of_a_test_that_passes_on_the_real_device() -> None:
    real = table.load()["real"]
    for file, known in table.reasons().items():
        for name in known:
            assert any(each.startswith(name.rstrip("*")) for each in real[file].names["passed"]), name


def test_what_nobody_expected_is_told() -> None:
    real = Run("2.11", "GPU", "", {"passed": ["A.one", "A.two", "A.three"]})
    ours = Run("2.13", "CPU", "", {"passed": ["A.one", "A.two"], "failed": ["A.three"]})
    assert run.surprises("no such file", ours, real) == ["A.three failed"]
    known = next(iter(table.reasons()["test_cuda"]))
    real.names["passed"] = ours.names["passed"] = [known]
    (told,) = run.surprises("test_cuda", ours, real)
    assert told.startswith(f"{known} passes, and should not: ")
