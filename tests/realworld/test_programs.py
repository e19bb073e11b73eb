"""Every program of the table under `torchdevice run`, against the same program written for the CPU.

The fast ones that need nothing beyond the `dev` extra belong to `make test`; the others need the extra `realworld`.
All modes: `make realworld`.
"""

from __future__ import annotations

import re

import pytest

from tests import checkout
from tools.realworld import modes, table
from tools.realworld.program import FOLDER, Program
from tools.realworld.runner import error_line, run

PROJECT = checkout.PROJECT["project"]
DEV = {re.split(r"[^\w-]", line)[0] for line in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]}


def _always(program: Program) -> bool:
    return program.fast and set(program.packages) <= DEV


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(program, id=program.name, marks=() if _always(program) else pytest.mark.realworld)
        for program in table.PROGRAMS
    ],
)
def test_runs_on_the_cpu(program: Program) -> None:
    if program.missing():
        pytest.skip(f"not installed: {', '.join(program.missing())}")
    reference = run(program, modes.BY_NAME["reference"])
    assert program.refusal or reference["status"] == "passed", reference
    row = run(program, modes.BY_NAME["run"], reference)
    assert row["status"] == "passed", row


def test_every_program_has_a_row_and_says_what_it_is_for() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(table.BY_NAME)
    for program in table.PROGRAMS:
        assert program.purpose, program.name
        assert "torchdevice" not in program.text().lower(), f"{program.name} knows of us"


def test_the_line_that_tells_what_went_wrong() -> None:
    assert error_line("Traceback …\nRuntimeError: no\ntorchdevice: cuda → cpu\n") == "RuntimeError: no"
    assert error_line("[rank0]: ValueError: x\nsome launcher's box\n") == "[rank0]: ValueError: x"
    assert error_line("Segmentation fault\n") == "Segmentation fault"
