"""Every program in every mode, against plain torch on the CPU."""

from __future__ import annotations

import pytest

from tests import torches
from tests.semantics import known
from tests.semantics.judging import difference, same
from tests.semantics.modes import MODES, Mode, returned_by_plain_torch, returned_in
from tests.semantics.program import NOTHING, every_program
from tests.semantics.runner import plain

PROGRAMS = {program.name: program for program in every_program()}


def _wanted() -> dict[str, object]:
    judged = returned_by_plain_torch()
    written = {name: plain(each.wanted) for name, each in PROGRAMS.items() if each.wanted is not NOTHING}
    return {**written, **{name: row["returned"] for name, row in judged.items() if "returned" in row}}


@pytest.mark.long
@pytest.mark.virtual
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_programs_mean_what_they_mean_in_plain_torch(mode: Mode) -> None:
    returned, excused = returned_in(mode), known.reasons(mode)
    differences = {
        name: found
        for name, wanted in _wanted().items()
        if (found := difference(wanted, returned.get(name), PROGRAMS[name].tolerance))
    }
    unknown = [f"{name}: {found}" for name, found in differences.items() if name not in excused]
    assert not unknown, f"{len(unknown)} programs differ in {mode}:\n" + "\n".join(unknown)
    if torches.on_pinned_torch():
        stale = sorted(excused.keys() - differences.keys())
        assert not stale, f"these no longer differ in {mode}, so their rows in known.py go: {stale}"


@pytest.mark.long
@torches.recorded_on_pinned_torch
def test_plain_torch_runs_every_program_that_it_judges() -> None:
    failed = {name: row["raised"] for name, row in returned_by_plain_torch().items() if "raised" in row}
    assert failed == {}
    assert {name for name, row in returned_by_plain_torch().items() if row["returned"] is None} == set()


def test_rows_of_known_differences_name_programs_and_each_once() -> None:
    for mode in MODES:
        named = [name for row in known.ROWS if mode in row.modes for name in row.programs]
        assert len(named) == len(set(named)), mode
        assert set(named) <= PROGRAMS.keys()
    assert all(row.reason.startswith(("design: ", "torch: ")) for row in known.ROWS)


def test_a_difference_is_seen() -> None:
    assert same([1.0, {"a": 2}], [1.00001, {"a": 2}], 1e-4)
    assert same(float("nan"), float("nan"), 0.0)
    for wanted, got in [
        (1.0, 1.1),
        (1, 2),
        (1, True),
        (1, 1.0),
        ([1], [1, 1]),
        ({"a": 1}, {"b": 1}),
        ("x", "y"),
        (0.0, float("nan")),
    ]:
        assert not same(wanted, got, 1e-4)
    assert difference(1, None, 0.0)
    assert difference(1, {"raised": "ValueError: no"}, 0.0) == "wanted 1, raised ValueError: no"
    assert difference(1, {"returned": 1}, 0.0) is None
