"""Statuses, gaps, storage and differences: pure functions of what was measured."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.torches import recorded_on_pinned_torch
from tools.catalog import results
from tools.catalog.gap_rows import DIVERGENCE, KNOWN, LIMIT, REFINE, SIGNATURE, UNPATCHED
from tools.catalog.gaps import gaps
from tools.catalog.reasons import OUT_OF_REACH
from tools.catalog.results import Called, Run
from torchdevice.answers.products import WIDENED
from torchdevice.catalog.changes import changes
from torchdevice.catalog.entries import Entry, namespace_of
from torchdevice.catalog.measured import HOSTS, Measured
from torchdevice.catalog.status import COMPLETE, GAP, IN_PROGRESS, NOT_APPLICABLE, NOT_STARTED, status_of
from torchdevice.catalog.store import add_note, load_notes, load_results, shipped_notes
from torchdevice.catalog.treatment import FALLBACK, PASSTHROUGH
from torchdevice.cli.catalog import gather
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
        (Measured("call", False, {}, reason="abstract"), "passthrough", NOT_APPLICABLE),
    ],
)
def test_status_is_computed(measured: Measured | None, treatment: str, status: str) -> None:
    assert status_of(measured, treatment) == status


@pytest.mark.parametrize(
    ("name", "why", "reason"),
    [
        ("torch.a", "RuntimeError: reinforce() was removed.", "removed from torch"),
        ("torch.a", "TypeError: Can't instantiate abstract class Joinable", "abstract; it cannot be instantiated"),
        ("torch.a", "NotImplementedError: ", "abstract; a subclass defines it"),
        (
            "torch.a",
            "NotImplementedError: Could not run 'aten::a' with",
            "torch has no kernel for it on the CPU",
        ),
        ("torch.a", "TypeError: f() missing 1 required positional argument: 'was removed'", ""),
        ("torch.a", "AttributeError: 'NestedIOFunction' object has no attribute '_nested_output'", ""),
        ("torch.a", "", ""),
        (
            "torch.miopen_rnn",
            "TypeError: missing",
            "needs MIOpen, AMD's library, which only the ROCm build of torch has",
        ),
    ],
)
def test_why_nothing_can_be_run_is_told_by_the_name_or_the_exception(name: str, why: str, reason: str) -> None:
    assert Called("call", "x", False, NOWHERE, {"cpu": why}).reason(name) == reason
    assert not Called("call", "x", False, {**NOWHERE, "cuda": "passed"}, {"cpu": why}).reason(name)
    assert not Called("call", "x", True, NOWHERE, {"cpu": why}).reason(name)


def test_every_rule_of_names_is_about_names_that_exist(entries: list[Entry]) -> None:
    names = [entry.name for entry in entries]
    assert [rule for rule in OUT_OF_REACH if not any(re.fullmatch(rule, name) for name in names)] == []


@recorded_on_pinned_torch
def test_every_name_was_called_or_has_a_reason(entries: list[Entry]) -> None:
    assert [entry.name for entry in entries if entry.status == IN_PROGRESS] == []
    assert [entry.name for entry in entries if entry.status == NOT_APPLICABLE and not entry.reason] == []


@recorded_on_pinned_torch
@pytest.mark.parametrize(
    ("name", "native"),
    [
        ("torch.add", ("cpu", "cuda", "mps")),
        ("torch.mm", ("cpu", "cuda", "mps")),
        ("torch.linalg.eigh", ("cpu", "cuda")),
        ("torch.mode", ("cpu", "cuda")),
    ],
)
def test_which_device_runs_it_is_measured(entries: list[Entry], name: str, native: tuple[str, ...]) -> None:
    entry = next(entry for entry in entries if entry.name == name)
    assert entry.native == native
    assert (entry.treatment == FALLBACK) is ("mps" not in native)


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    called = {
        "torch.a": Called("OpInfo", "torch.a", True, EVERYWHERE),
        "torch.b": Called("call", "torch.b(a | b)", True, {**EVERYWHERE, "mps": "raised"}, {"mps": "no | way"}),
        "torch.c.d": Called("call", "torch.c.d()", False, NOWHERE, {"cpu": "RuntimeError: it was removed."}),
        "torch.e": Called("OpInfo", "torch.e", True, EVERYWHERE, {}, ("aten::e", "aten::f.out")),
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
        "torch.c.d": Measured("call", False, NOWHERE, reason="removed from torch"),
        "torch.e": Measured("OpInfo", True, EVERYWHERE, elsewhere=("aten::e", "aten::f.out")),
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
        dataclasses.replace(plain, name="torch.cudnn_convolution"),
    ]
    found = list(gaps(rows, {}))
    assert [gap.kind for gap in found] == [SIGNATURE, UNPATCHED, DIVERGENCE, DIVERGENCE, LIMIT, REFINE]
    assert [gap.severity for gap in found if gap.kind == DIVERGENCE] == ["medium", "high"]
    assert "1 instead of 2" in found[2].description
    assert "torch's own limit" in found[3].description
    assert found[4].instead == "raises"


@recorded_on_pinned_torch
def test_every_gap_has_a_row_and_an_action_of_its_own(entries: list[Entry], called: dict[str, Called]) -> None:
    found = list(gaps(entries, called))
    assert [gap.name for gap in found if gap.name not in KNOWN] == []
    assert [name for name in KNOWN if name not in {gap.name for gap in found}] == []
    actions = Counter(gap.action for gap in found)
    assert [action for action, count in actions.items() if count > 1] == []
    assert all(gap.module and gap.instead and gap.description and gap.severity and gap.status for gap in found)


@recorded_on_pinned_torch
def test_forms_that_cuda_alone_has_are_in_the_log(entries: list[Entry]) -> None:
    tables = gather()
    alone = {
        entry.name
        for entry in entries
        if entry.treatment in (PASSTHROUGH, FALLBACK) and not entry.name.startswith("torch.miopen_")
        for form in tables.overloads(entry.name)
        if "cuda" in tables.kernels[form] and "cpu" not in tables.kernels[form] and f"aten::{form}" not in WIDENED
    }
    assert "torch.cudnn_convolution" in alone
    assert alone - set(KNOWN) == set()


@recorded_on_pinned_torch
def test_what_needs_an_nvidia_gpu_or_nccl_is_in_the_log(entries: list[Entry]) -> None:
    """A program for CUDA may call it. What is abstract, removed or another vendor's is no gap."""
    missing = re.compile(r"CUDA|NCCL|NVIDIA|driver|no kernel for it on the CPU|accelerator")
    asked = {entry.name for entry in entries if missing.search(entry.reason) and not _refused_by_torch(entry.name)}
    assert len(asked) > 30
    assert asked - set(KNOWN) == set()


def _refused_by_torch(name: str) -> bool:
    """On CUDA as well, or a method that a backend of NCCL's has and Gloo's class only inherits."""
    return name.startswith("torch.distributed.ProcessGroupGloo.") or name == "torch.serialization.validate_cuda_device"


def test_signatures_are_the_same_in_every_process(entries: list[Entry]) -> None:
    """An address in a default value would be a change between a torch and itself."""
    assert [entry.name for entry in entries if re.search(r"0x[0-9a-f]{6}", entry.signature)] == []
    assert any("Options object>" in entry.signature for entry in entries)
    assert changes([entry.to_json() for entry in entries], [entry.to_json() for entry in entries]).changed == {}


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
