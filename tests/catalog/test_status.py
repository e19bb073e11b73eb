"""Statuses, gaps, storage and differences: pure functions of what was measured."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from torchdevice.catalog.changes import changes
from torchdevice.catalog.entries import Entry, namespace_of
from torchdevice.catalog.gaps import DIVERGENCE, LIMIT, SIGNATURE, UNPATCHED, gaps
from torchdevice.catalog.status import COMPLETE, GAP, IN_PROGRESS, NOT_APPLICABLE, NOT_STARTED, Measured, status_of
from torchdevice.catalog.store import Results, add_note, load_notes, load_results, save_results

EVERYWHERE = {"cpu": "passed", "mps": "passed", "cuda": "passed"}


@pytest.mark.parametrize(
    ("measured", "treatment", "status"),
    [
        (None, "passthrough", NOT_STARTED),
        (Measured("OpInfo", "torch.add", True, EVERYWHERE), "passthrough", COMPLETE),
        (Measured("call", "x", True, {**EVERYWHERE, "mps": "differs"}), "fallback", GAP),
        (Measured("call", "x", True, {**EVERYWHERE, "cpu": "raised"}), "translated", GAP),
        (Measured("call", "x", False, {"cpu": "passed", "mps": "none", "cuda": "none"}), "simulated", COMPLETE),
        (Measured("call", "x", False, EVERYWHERE), "unsupported", GAP),
        (Measured("call", "x", False, {}, {"cpu": "TypeError: f() needs more"}), "passthrough", IN_PROGRESS),
        (Measured("call", "x", False, {}, {"cpu": "RuntimeError: it was removed."}), "passthrough", NOT_APPLICABLE),
    ],
)
def test_status_is_computed(measured: Measured | None, treatment: str, status: str) -> None:
    assert status_of(measured, treatment) == status


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    measured = {
        "torch.a": Measured("OpInfo", "torch.a", True, EVERYWHERE),
        "torch.b": Measured("call", "torch.b(a | b)", True, {**EVERYWHERE, "mps": "raised"}, {"mps": "no | way"}),
    }
    save_results(Results("2.13", measured, frozenset({"torch.a"})), tmp_path)
    assert load_results(tmp_path) == Results("2.13", measured, frozenset({"torch.a"}))


def test_notes(tmp_path: Path) -> None:
    add_note("torch.b", "second", tmp_path)
    add_note("torch.a", "first", tmp_path)
    assert load_notes(tmp_path) == {"torch.a": "first", "torch.b": "second"}
    add_note("torch.a", "", tmp_path)
    assert load_notes(tmp_path) == {"torch.b": "second"}


@pytest.fixture
def plain(entries: list[Entry]) -> Entry:
    add = next(entry for entry in entries if entry.name == "torch.add")
    return dataclasses.replace(add, outcomes=EVERYWHERE, why={}, note="", same_signature=True, device_parameters=())


def test_gaps_have_a_class_each(plain: Entry) -> None:
    assert list(gaps([plain])) == []
    rows = [
        dataclasses.replace(plain, same_signature=False),
        dataclasses.replace(plain, device_parameters=("device",), verified_by="none", call=""),
        dataclasses.replace(plain, outcomes={**EVERYWHERE, "mps": "differs"}, why={"mps": "1 instead of 2"}),
        dataclasses.replace(plain, outcomes={**EVERYWHERE, "cpu": "raised"}, note="torch's own limit"),
        dataclasses.replace(plain, treatment="unsupported", how="raises"),
    ]
    found = list(gaps(rows))
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
