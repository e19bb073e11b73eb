"""Every public callable with a device-like parameter is translated, answered, or proven safe by a call with "cuda".

This is the enumeration that a new torch must pass: what it adds is neither patched nor proven, and is named here.
"""

from __future__ import annotations

import dataclasses

import pytest

from tests.torches import recorded_on_pinned_torch
from tools.catalog import pool
from tools.catalog.proof import NOT_NEEDED, gives_the_device, needs_proof, proven
from tools.catalog.results import Called
from torchdevice.catalog.entries import Entry
from torchdevice.catalog.signatures import DEVICE_LIKE
from torchdevice.catalog.surface import METHOD


@recorded_on_pinned_torch
def test_every_device_parameter_is_patched_or_proven(entries: list[Entry], called: dict[str, Called]) -> None:
    taking = [entry for entry in entries if entry.device_parameters]
    assert len(taking) > 250
    unproven = [entry for entry in taking if needs_proof(entry) and not proven(entry, called.get(entry.name))]
    assert [entry.name for entry in unproven] == []


@recorded_on_pinned_torch
def test_the_proofs_hold_now(entries: list[Entry], called: dict[str, Called]) -> None:
    """The same calls again, under TorchDevice on this machine: old data proves nothing about today's code."""
    jobs = [
        {"name": entry.name, "known": {"by": called[entry.name].by, "call": called[entry.name].call}}
        for entry in entries
        if needs_proof(entry)
    ]
    rows = {}
    pool.run_all("cpu", jobs, 1, lambda row: rows.update({row["name"]: row}))
    assert {name: row["errors"] for name, row in rows.items() if not row["results"]} == {}
    assert len(rows) == len(jobs) > 80


def test_a_function_that_a_new_torch_adds_is_found(entries: list[Entry]) -> None:
    known = next(entry for entry in entries if entry.name == "torch.add")
    new = dataclasses.replace(known, name="torch.brand_new", device_parameters=("device",))
    assert needs_proof(new)
    assert not proven(new, None)
    assert not proven(new, Called("call", "torch.brand_new(1)", True, {"cpu": "passed"}))
    assert not proven(new, Called("call", "torch.brand_new(1, D)", True, {"cpu": "raised"}))
    assert proven(new, Called("call", "torch.brand_new(1, D)", True, {"cpu": "passed"}))


@pytest.mark.parametrize(
    ("call", "gives"),
    [
        ("torch.new.Thing(1, device=D).size()", True),
        ("torch.new.Thing(1).size('cuda')", True),
        ("torch.new.Thing(device_ids=None if D == 'cpu' else [0]).size()", True),
        ("torch.new.Thing([torch.device(D)]).size()", True),
        ("torch.new.Thing(T(3).to(D)).size()", False),
        ("torch.other(D)", False),
        ("torch.new.Thing('D').size()", False),
        ("", False),
    ],
)
def test_whose_argument_the_device_is(call: str, gives: bool) -> None:
    assert gives_the_device("torch.new.Thing.size", call) is gives


@recorded_on_pinned_torch
def test_what_needs_no_proof_exists(entries: list[Entry]) -> None:
    names = {entry.name for entry in entries if entry.device_parameters}
    assert set(NOT_NEEDED) <= names


def test_parameter_names() -> None:
    for name in ("device", "devices", "device_ids", "device_type", "map_location", "output_device", "target_device"):
        assert DEVICE_LIKE.fullmatch(name)
    for name in ("dtype", "size", "deviceless", "location"):
        assert not DEVICE_LIKE.fullmatch(name)


def test_methods_are_among_them(entries: list[Entry]) -> None:
    assert any(entry.kind == METHOD and entry.device_parameters for entry in entries)
