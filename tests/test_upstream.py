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

AT_LEAST = 100  # tests of the selection
SECONDS = 600  # per test: against endless ones, not a measure of speed
# They take longer than all the others, need a machine of their own, or depend on how much memory it has. A product of
# large matrices, or of half-precision ones, takes a minute on a processor without instructions for it.
LEFT_OUT = (
    "fuzz", "large", "overflow", "threads", "subprocess", "import", "oom", "memory", "assert_async", "lazy", "with_amp",
    "callables_without_amp",
    "max_split",
)  # fmt: skip
# In the reason of a test that skips itself: C++ stacks are unwound on x86 only, and NVML is in the extra `upstream`.
NOT_ON_THIS_MACHINE = ("x86", "pynvml/amdsmi is not available")


def selection() -> list[str]:
    """Tests of test_cuda.py that pass on a real GPU and on a virtual one."""
    results = table.load()
    both = set(results["real"]["test_cuda"].names["passed"]) & set(results["cuda"]["test_cuda"].names["passed"])
    quick = sorted(name for name in both if not any(word in name for word in LEFT_OUT))
    return quick[:: max(1, len(quick) // AT_LEAST)]


def fetched_tests() -> Path:
    try:
        return archive.tests()
    except urllib.error.URLError as error:
        pytest.skip(f"Debian's archive cannot be reached: {error.reason}")


@pytest.mark.long
@recorded_on_pinned_torch
def test_what_passed_once_passes() -> None:
    names = selection()
    assert len(names) >= AT_LEAST
    rows = run_worker([*run.command(fetched_tests(), "test_cuda", "cuda"), str(SECONDS)], names)
    run_here = [
        row for row in rows
        if row["status"] != "skipped" or not any(reason in row["why"] for reason in NOT_ON_THIS_MACHINE)
    ]  # fmt: skip
    assert {row["op"]: row for row in run_here if row["status"] != "passed"} == {}


@pytest.mark.processes
def test_a_crash_and_a_hang_cost_one_test_each(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import os, time, unittest\n"
        "class TestSome(unittest.TestCase):\n"
        "    def test_hangs(self): time.sleep(60)\n"
        "    def test_crash(self): os.kill(os.getpid(), 11)\n"
        "    def test_fails(self): self.assertEqual(1, 2)\n"
        "    def test_passes(self): pass\n"
        "    @unittest.skip('why not')\n"
        "    def test_skipped(self): pass\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "tools.upstream.worker", str(tmp_path), "test_some", table.REAL, "2"]
    names = [f"TestSome.test_{name}" for name in ("crash", "hangs", "fails", "passes", "skipped")]
    rows = run_worker(command, names)
    assert Run.of(rows, torch="", machine="", date="").names == {
        "crashed": ["TestSome.test_crash"],
        "too long": ["TestSome.test_hangs"],
        "failed": ["TestSome.test_fails"],
        "passed": ["TestSome.test_passes"],
        "skipped": ["TestSome.test_skipped"],
    }
    found = {row["op"].rpartition("_")[2]: row for row in rows}
    assert found["fails"]["why"] == "AssertionError: 1 != 2"
    assert found["skipped"]["why"] == "why not"


def test_the_page_is_written_from_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = page.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(page, "PAGE", tmp_path / "upstream.md")
    page.write_page(table.load())
    assert page.PAGE.read_text(encoding="utf-8") == before


def test_every_reason_is_one_of_a_test_that_counts() -> None:
    counts: dict[str, set[str]] = {}
    for _, file, real, ours in page.pairs(table.load()):
        counts.setdefault(file, set()).update(table.counted(ours, real))
    for file, known in table.reasons().items():
        assert known.keys() <= counts[file]


def test_what_nobody_expected_is_told() -> None:
    real = Run("2.11", "GPU", "", {"passed": ["A.one", "A.two", "A.three"]})
    ours = Run("2.13", "CPU", "", {"passed": ["A.one", "A.two"], "failed": ["A.three"]})
    assert run.surprises("no such file", ours, table.counted(ours, real)) == ["A.three failed"]
    assert run.surprises("no such file", ours, table.counted(ours, None)) == ["A.three failed"]
    known = next(iter(table.reasons()["test_cuda"]))
    real.names["passed"] = ours.names["passed"] = [known]
    (told,) = run.surprises("test_cuda", ours, table.counted(ours, real))
    assert told.startswith(f"{known} passes, and should not: ")
