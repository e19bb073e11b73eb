"""The table of benchmarks, the figures' arithmetic, the command, and the documents made of the figures."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from pathlib import Path

import pytest
import torch

import torchdevice
from tests.virtual.harness import on
from tools.docs import benchmarks as report
from torchdevice.bench import BENCHMARKS, Figure, backed, interleaved, runner
from torchdevice.bench.runner import emit, read
from torchdevice.cli import bench

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_is_a_program(name: str) -> None:
    module = runner.PROGRAMS.get(name, (name,))[0]
    assert callable(importlib.import_module(f"torchdevice.bench.{module}").main)


def test_figures_travel_through_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    figures = [Figure("a", 1.234, limit=1.3, spread=(1.0, 2.0)), Figure("b", 5.0, "ms", note="ü")]
    print("not ours")
    emit(figures)
    assert read(capsys.readouterr().out.splitlines()) == figures


@pytest.mark.parametrize(
    ("figure", "kept", "text"),
    [
        (Figure("x", 1.0104, limit=1.01), True, "1.010×"),
        (Figure("x", 1.0106, limit=1.01), False, "1.011×"),
        (Figure("x", 1.304, limit=1.30, spread=(1.2, 1.4)), True, "1.30 (1.20–1.40)×"),
        (Figure("x", 12.345, "ms"), None, "12.35 ms"),
    ],
)
def test_a_limit_is_judged_by_the_digits_that_are_shown(figure: Figure, kept: bool | None, text: str) -> None:
    assert (figure.kept, str(figure)) == (kept, text)


@on("mps:real")
def test_the_gaps_by_hand_are_those_of_the_training_step() -> None:
    from torchdevice.bench import fallbacks

    step, gaps = fallbacks.training_step("mps"), fallbacks.gaps_of_step("mps")
    torchdevice.activate(policy="portable")
    step()
    for call, arguments in gaps.values():
        call(*(each.to("mps") for each in arguments))
    calls: Counter[str] = Counter()
    for row in torchdevice.report().fallbacks:
        calls[row.operator] += row.calls
    assert set(calls.values()) == {2}  # once in the step, once alone


def test_ratios_are_taken_within_a_round_and_the_order_rotates() -> None:
    order: list[str] = []
    weather = iter([1.0, 1.0, 10.0, 10.0, 3.0, 3.0])

    def variant(name: str, factor: float):
        def seconds() -> float:
            order.append(name)
            return next(weather) * factor

        return seconds

    found = interleaved({"plain": variant("plain", 1.0), "ours": variant("ours", 2.0)}, "plain", 3)
    assert found["ours"] == (2.0, (2.0, 2.0))
    assert order == ["plain", "ours", "ours", "plain", "plain", "ours"]


def test_the_command_measures_prints_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {"calls": ([Figure("torch.zeros(2)", 1.5, limit=1.3)], ""), "virtual": ([], "no compiler")}
    monkeypatch.setattr(runner, "run_one", lambda name, quick: figures[name])
    path = tmp_path / "figures.json"
    assert bench.main(["calls", "virtual", "--json", str(path)]) == 1
    out = capsys.readouterr().out
    assert "1.50×" in out
    assert "✗" in out
    assert "virtual: not measured: no compiler" in out
    again = runner.Results.from_json(json.loads(path.read_text()))
    assert again.figures["calls"] == figures["calls"][0]
    assert again.missing == {"virtual": "no compiler"}


@pytest.mark.processes
def test_a_benchmark_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    figures, reason = runner.run_one("calls", quick=True)
    assert figures == []
    assert "valgrind is not installed" in reason


def test_the_documents_are_those_of_the_committed_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "DOCS", tmp_path)
    report.main()
    for name in ("benchmarks.md", "overhead.svg"):
        assert (tmp_path / name).read_text() == (ROOT / "docs" / name).read_text(), "run `make docs`"


def test_short_work_is_measured_in_several_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began: dict[tuple[str, str], int] = Counter()

    class Side:
        """A process that always measures the same."""

        def __init__(self, place: str) -> None:
            self.place, self.names = place, set[str]()

        def turn(self, name: str) -> float:
            began[self.place, name] += name not in self.names
            self.names.add(name)
            return 2.0 if "@" in self.place else 1.0

        def end(self) -> None:
            pass

    monkeypatch.setattr(backed, "Side", Side)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr("sys.argv", ["backed", "--quick"])
    backed.main()
    rows = {figure.what: figure.value for figure in read(capsys.readouterr().out.splitlines())}
    assert rows["launch-bound step on mps@cuda"] == 2.0
    assert rows["launch-bound step on plain, a second time"] == 1.0
    assert rows["mm 4x4: added by xpu@cuda"] == 1e6
    processes = {name: each for (place, name), each in began.items() if place == "mps@cuda"}
    assert processes == {name: backed.PROCESSES.get(name, backed.FOR_OPERATORS) for name in processes}
    assert processes["launch-bound step"] == 5
