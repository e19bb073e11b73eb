"""Statuses, gaps, storage and differences: pure functions of what was measured."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from tools.catalog import results
from tools.catalog.gaps import DIVERGENCE, LIMIT, SIGNATURE, UNPATCHED, gaps
from tools.catalog.results import Called, Run
from torchdevice.catalog.changes import changes
from torchdevice.catalog.entries import Entry, namespace_of
from torchdevice.catalog.status import (
    COMPLETE,
    GAP,
    HOSTS,
    IN_PROGRESS,
    NOT_APPLICABLE,
    NOT_STARTED,
    Measured,
    status_of,
)
from torchdevice.catalog.store import add_note, load_notes, load_results, shipped_notes
from torchdevice.errors import ConfigError

EVERYWHERE = dict.fromkeys(HOSTS, "passed")
NOWHERE = dict.fromkeys(HOSTS, "none")


@pytest.mark.parametrize(
    ("measured", "treatment", "status"),
    [
        (None, "passthrough", NOT_STARTED),
        (Measured("OpInfo", True, EVERYWHERE), "passthrough", COMPLETE),
        (Measured("call", True, {**EVERYWHERE, "mps": "differs"}), "fallback", GAP),
        (Measured("call", True, {**EVERYWHERE, "cpu": "raised"}), "translated", GAP),
        (Measured("call", False, {"cpu": "passed", "mps": "none", "cuda": "none"}), "simulated", COMPLETE),
        (Measured("call", False, EVERYWHERE), "unsupported", GAP),
        (Measured("call", False, {}), "passthrough", IN_PROGRESS),
        (Measured("call", False, {}, absent=True), "passthrough", NOT_APPLICABLE),
    ],
)
def test_status_is_computed(measured: Measured | None, treatment: str, status: str) -> None:
    assert status_of(measured, treatment) == status


@pytest.mark.parametrize(
    ("why", "absent"),
    [
        ("RuntimeError: reinforce() was removed.", True),
        ("TypeError: Can't instantiate abstract class Joinable with abstract methods join_hook", True),
        ("NotImplementedError: ", True),
        ("TypeError: f() missing 1 required positional argument: 'was removed'", False),
        ("AttributeError: 'NestedIOFunction' object has no attribute '_nested_output'", False),
        ("", False),
    ],
)
def test_what_torch_refuses_is_told_by_the_exception(why: str, absent: bool) -> None:
    assert Called("call", "x", False, NOWHERE, {"cpu": why}).absent is absent
    assert not Called("call", "x", False, {**NOWHERE, "cuda": "passed"}, {"cpu": why}).absent


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    called = {
        "torch.a": Called("OpInfo", "torch.a", True, EVERYWHERE),
        "torch.b": Called("call", "torch.b(a | b)", True, {**EVERYWHERE, "mps": "raised"}, {"mps": "no | way"}),
        "torch.c.d": Called("call", "torch.c.d()", False, NOWHERE, {"cpu": "RuntimeError: it was removed."}),
    }
    run = Run("2.13", called, frozenset({"torch.abs"}))
    everything, shipped = tmp_path / "everything.json", tmp_path / "shipped.json"
    results.save(run, everything)
    assert results.load(everything) == run
    results.ship(run.shipped(), shipped)
    assert load_results(shipped) == run.shipped()
    assert load_results(shipped).measured == {
        "torch.a": Measured("OpInfo", True, EVERYWHERE),
        "torch.b": Measured("call", True, {**EVERYWHERE, "mps": "raised"}, {"mps": "no | way"}),
        "torch.c.d": Measured("call", False, NOWHERE, absent=True),
    }
    assert load_results(shipped).mlx == {"torch.abs": ("mx.abs(x)", "exact")}


@pytest.fixture
def _own_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHDEVICE_CACHE", str(tmp_path))


@pytest.mark.usefixtures("_own_notes")
def test_notes(tmp_path: Path) -> None:
    shipped = shipped_notes()
    assert load_notes() == shipped
    path = add_note("torch.b", "second")
    assert path.parent == tmp_path
    add_note("torch.a", "first")
    assert load_notes() == shipped | {"torch.a": "first", "torch.b": "second"}
    add_note("torch.a", "")
    assert load_notes() == shipped | {"torch.b": "second"}
    assert json.loads(path.read_text()) == {"torch.b": "second"}


@pytest.mark.usefixtures("_own_notes")
def test_a_note_of_the_user_stands_before_the_shipped_one_and_an_empty_one_hides_it() -> None:
    name, shipped = next(iter(shipped_notes().items()))
    add_note(name, "seen")
    assert load_notes()[name] == "seen"
    add_note(name, "")
    assert name not in load_notes()
    assert shipped_notes()[name] == shipped


@pytest.mark.usefixtures("_own_notes")
def test_a_file_of_notes_that_is_broken_is_named_and_left_alone() -> None:
    path = add_note("torch.a", "first")
    path.write_text("[1]")
    with pytest.raises(ConfigError, match=rf"(?s){re.escape(str(path))}.*Hint"):
        add_note("torch.b", "second")
    assert path.read_text() == "[1]"


@pytest.fixture
def plain(entries: list[Entry]) -> Entry:
    add = next(entry for entry in entries if entry.name == "torch.add")
    return dataclasses.replace(add, outcomes=EVERYWHERE, why={}, note="", same_signature=True, device_parameters=())


def test_gaps_have_a_class_each(plain: Entry) -> None:
    assert list(gaps([plain], {})) == []
    rows = [
        dataclasses.replace(plain, same_signature=False),
        dataclasses.replace(plain, device_parameters=("device",)),
        dataclasses.replace(plain, outcomes={**EVERYWHERE, "mps": "differs"}, why={"mps": "1 instead of 2"}),
        dataclasses.replace(plain, outcomes={**EVERYWHERE, "cpu": "raised"}, note="torch's own limit"),
        dataclasses.replace(plain, treatment="unsupported", how="raises"),
    ]
    found = list(gaps(rows, {}))
    assert [gap.kind for gap in found] == [SIGNATURE, UNPATCHED, DIVERGENCE, DIVERGENCE, LIMIT]
    assert [gap.severity for gap in found if gap.kind == DIVERGENCE] == ["medium", "high"]
    assert [gap.status for gap in found if gap.kind == DIVERGENCE] == ["open", "accepted"]
    assert "1 instead of 2" in found[2].differs


def test_differences_between_two_catalogues(plain: Entry) -> None:
    other = dataclasses.replace(plain, name="torch.other")
    changed = dataclasses.replace(plain, signature="(x)", status=GAP)
    found = changes([plain.to_json(), other.to_json()], [changed.to_json(), {**other.to_json(), "name": "torch.new"}])
    assert (found.added, found.removed) == (("torch.new",), ("torch.other",))
    assert set(found.changed["torch.add"]) >= {"signature"}
    assert found.lines()[0] == "1 added, 1 removed, 1 changed"


@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("torch.zeros", "torch"),
        ("torch.Tensor.add", "torch.Tensor"),
        ("torch.nn.functional.relu", "torch.nn.functional"),
        ("torch.nn.Linear.forward", "torch.nn"),
        ("torch.UntypedStorage.cuda", "torch.storage"),
        ("torch.Generator.seed", "torch"),
    ],
)
def test_namespaces(name: str, space: str) -> None:
    assert namespace_of(name) == space
