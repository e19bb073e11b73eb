"""How a verdict is reached; the programs themselves are `test_programs`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tools.realworld import modes, runner, table

PORTABLE, RUN = modes.BY_NAME["cuda portable"], modes.BY_NAME["run"]
PROGRAM = table.BY_NAME["imagenet_trainer"]


def verdict(values: list[float], reference: Any, mode: modes.Mode = PORTABLE) -> str:
    told = {"steps": 1, "devices": [mode.device], "values": values}
    return runner._verdict(PROGRAM, mode, 0, "", told, reference)


def test_values_must_be_those_of_the_judge() -> None:
    assert verdict([1.0, 2.0], {"values": [1.0, 2.001]}) == ""
    assert verdict([1.0, 2.1], {"values": [1.0, 2.0]}) == "value 1 is 2.1, expected 2 (tolerance 0.002)"
    assert verdict([1.0], {"values": [1.0, 2.0]}) == "1 values, expected 2"
    assert verdict([1.0, 2.001], {"values": [1.0, 2.0]}, RUN).startswith("value 1 is")


def test_a_judge_that_differs_from_itself_allows_as_much() -> None:
    assert verdict([1.0, 2.1], {"values": [1.0, 2.0], "apart": 0.02}) == ""
    assert verdict([1.0, 2.2], {"values": [1.0, 2.0], "apart": 0.02}) != ""


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"steps": 0}, "no work was done"),
        ({"devices": ["cpu"]}, "parameters on cpu, promised: cuda"),
        ({"devices": []}, "parameters on no device, promised: cuda"),
        ({"values": [float("nan")]}, "values are not finite: [nan]"),
        ({"values": []}, "values are not finite: []"),
    ],
)
def test_what_is_no_pass(said: dict[str, Any], expected: str) -> None:
    told = {"steps": 1, "devices": ["cuda"], "values": [1.0], **said}
    assert runner._verdict(PROGRAM, PORTABLE, 0, "", told, {"values": [1.0]}) == expected


def test_without_a_judge_nothing_passes() -> None:
    assert verdict([1.0], None) == "nothing to compare with: cuda reference did not run"
    assert verdict([1.0], {"status": "failed"}) == "nothing to compare with: cuda reference did not pass"


def test_what_cannot_be_asked_of_a_machine_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_gpus", lambda: 1)
    negative = replace(next(program for program in table.PROGRAMS if program.refusal), packages=())
    assert runner.run(negative, PORTABLE)["error"] == "is about machines without CUDA"
    two = replace(next(program for program in table.PROGRAMS if program.gpus == 2), packages=())
    assert runner.run(two, PORTABLE)["error"] == "needs 2 GPUs, 1 here"


def test_judges_repeat_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = iter([1.0, 1.5, 0.8])
    monkeypatch.setattr(runner, "run", lambda program, mode: {"status": "passed", "values": [next(runs)]})
    row = runner.measure(PROGRAM, modes.BY_NAME["cuda reference"])
    assert row["values"] == [1.0]
    assert row["apart"] == pytest.approx(0.5)


def test_the_judge_on_a_gpu_imports_no_package_of_cuda() -> None:
    judged = [program for program in table.PROGRAMS if program.in_torch]
    assert len(judged) > 6
    for program in judged:
        assert program.on_cpu[: len(program.in_torch)] == program.in_torch  # so the digest covers it
        judge = modes.BY_NAME["cuda reference"].replacements(program)
        assert judge == program.in_torch
        assert modes.BY_NAME["cuda"].replacements(program) == program.on_mps
        assert program.text(judge) != program.text()
        assert '"cuda' in program.text(judge)
