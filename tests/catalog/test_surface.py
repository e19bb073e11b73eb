"""What is public: nothing forgotten, nothing private, one entry per object."""

from __future__ import annotations

import importlib
import inspect
from collections import Counter

import pytest
import torch

from tests.torches import recorded_on_pinned_torch
from torchdevice._torch.core import overridable_functions
from torchdevice.catalog import surface as s
from torchdevice.catalog.surface import CLASS, FUNCTION, METHOD, PROPERTY, SETTING, Surface, read_surface


@pytest.fixture(scope="module")
def surface() -> Surface:
    return read_surface()


def test_there_are_as_many_as_the_plan_counts(surface: Surface) -> None:
    assert len(surface.found) >= 4269
    kinds = Counter(each.kind for each in surface.found.values())
    assert set(kinds) == {FUNCTION, CLASS, METHOD, PROPERTY, SETTING}
    assert surface.unread == {}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("torch.zeros", FUNCTION),
        ("torch.device", CLASS),
        ("torch.Tensor.to", METHOD),
        ("torch.Tensor.device", PROPERTY),
        ("torch.nn.Linear", CLASS),
        ("torch.nn.Linear.forward", METHOD),
        ("torch.nn.functional.relu", FUNCTION),
        ("torch.nn.init.xavier_uniform_", FUNCTION),
        ("torch.nn.utils.rnn.pack_sequence", FUNCTION),
        ("torch.nn.parallel.DistributedDataParallel", CLASS),
        ("torch.linalg.norm", FUNCTION),
        ("torch.fft.fft", FUNCTION),
        ("torch.special.erf", FUNCTION),
        ("torch.cuda.memory_allocated", FUNCTION),
        ("torch.cuda.nvtx.range_push", FUNCTION),
        ("torch.mps.synchronize", FUNCTION),
        ("torch.xpu.Stream", CLASS),
        ("torch.accelerator.synchronize", FUNCTION),
        ("torch.optim.Adam", CLASS),
        ("torch.distributed.all_reduce", FUNCTION),
        ("torch.distributions.Normal", CLASS),
        ("torch.backends.cudnn.benchmark", SETTING),
        ("torch.utils.checkpoint.checkpoint", FUNCTION),
        ("torch.utils.data.DataLoader", CLASS),
        ("torch.UntypedStorage.cuda", METHOD),
        ("torch.jit.script", FUNCTION),
        ("torch.export.export", FUNCTION),
        ("torch.func.vmap", FUNCTION),
        ("torch.hub.load", FUNCTION),
    ],
)
def test_well_known_names(surface: Surface, name: str, kind: str) -> None:
    names = {alias: each for each in surface.found.values() for alias in (each.name, *each.aliases)}
    assert names[name].kind == kind


def test_every_listed_name_is_there(surface: Surface) -> None:
    """`__all__` of a package is its word: each function and class in it is an entry or another name of one."""
    names = {alias for each in surface.found.values() for alias in (each.name, *each.aliases)}
    for root in s.ROOTS:
        module = importlib.import_module(f"torch.{root}")
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name, None)
            if s._counts(value) and not s._is_binding(value, f"torch.{root}"):
                assert f"torch.{root}.{name}" in names


def test_every_overridable_function_and_tensor_attribute_is_there(surface: Surface) -> None:
    names = {alias for each in surface.found.values() for alias in (each.name, *each.aliases)}
    public = [f"torch.{name}" for name in overridable_functions()["torch"] if name and not name.startswith("_")]
    assert [name for name in public if name not in names and callable(eval(name))] == []
    members = {name for name in dir(torch.Tensor) if not name.startswith("_")}
    assert {name for name in members if f"torch.Tensor.{name}" not in names} == set()


def test_no_private_name_and_no_object_twice(surface: Surface) -> None:
    assert [name for name in surface.found if any(part.startswith("_") for part in name.split("."))] == []
    seen = Counter(id(each.value) for each in surface.found.values() if each.kind in (FUNCTION, CLASS))
    assert [identity for identity, count in seen.items() if count > 1] == []
    assert [name for name in surface.found if s.is_left_out(name)] == []


@recorded_on_pinned_torch
def test_what_is_left_out_exists_and_says_why() -> None:
    for name, why in s.LEFT_OUT.items():
        assert why
        assert importlib.util.find_spec(name) is not None, name


def test_members_are_those_that_a_class_defines(surface: Surface) -> None:
    assert "torch.nn.Linear.to" not in surface.found  # torch.nn.Module's
    assert "torch.nn.Module.to" in surface.found
    assert inspect.isroutine(surface.found["torch.nn.Module.to"].value)
