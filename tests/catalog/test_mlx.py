"""Every pair of the cross-map is run: the same values on both sides."""

from __future__ import annotations

import functools
import inspect
import re

import pytest
import torch

pytest.importorskip("mlx.core")
import mlx.core as mx
import mlx.nn as mnn

from tools.catalog.mlx import EXACT, MAPPED, PARTIAL, Equivalent, equivalents
from tools.catalog.mlx_names import ALONE, THERE
from tools.catalog.values import disagreement
from torchdevice.catalog.entries import equivalent_of
from torchdevice.catalog.store import load_results

MODULES = {
    "mx": mx,
    "mx.fast": mx.fast,
    "mx.fft": mx.fft,
    "mx.linalg": mx.linalg,
    "mx.random": mx.random,
    "mnn": mnn,
    "mnn.init": mnn.init,
    "mnn.losses": mnn.losses,
}


@pytest.mark.parametrize("pair", equivalents().values(), ids=lambda pair: pair.name)
def test_both_sides_give_the_same_values(pair: Equivalent) -> None:
    assert functools.reduce(getattr, pair.name.split(".")[1:], torch) is not None
    try:
        assert disagreement(pair) == ""
    except RuntimeError as error:
        if "is now removed" not in str(error):
            raise
        pytest.skip(f"torch {torch.__version__} has removed {pair.name}")


def test_a_wrong_pair_is_seen() -> None:
    assert disagreement(Equivalent("torch.sin", "torch.sin(x)", "mx.cos(x)", EXACT)) != ""
    assert disagreement(Equivalent("torch.sum", "torch.sum(x)", "mx.sum(x, 0)", EXACT)) != ""


def test_there_are_enough_and_the_data_says_so() -> None:
    assert len(equivalents()) >= 200
    assert set(load_results().mlx) == set(equivalents())


def test_a_method_has_the_equivalent_of_its_function() -> None:
    verified = {"torch.add": load_results().mlx["torch.add"]}
    assert equivalent_of("torch.Tensor.add", verified).expression == "mx.add(x, y)"
    assert equivalent_of("torch.sub", verified).confidence == "none"
    assert {pair.confidence for pair in equivalents().values()} == {EXACT, MAPPED, PARTIAL}


def public_names() -> set[str]:
    """The functions and classes of MLX that compute, or that are made for others to compute with."""
    found = set()
    for place, module in MODULES.items():
        for name, value in vars(module).items():
            own = getattr(value, "__module__", "mlx").startswith("mlx")
            if callable(value) and own and not name.startswith("_") and not inspect.ismodule(value):
                found.add(f"{place}.{name}")
    return found


@pytest.mark.parametrize("name", THERE)
def test_names_of_mlx_that_have_a_counterpart(name: str) -> None:
    call, expression = THERE[name]
    assert f"{name}(" in expression
    assert disagreement(Equivalent(name, call, expression, MAPPED)) == ""


def test_every_name_of_mlx_has_a_counterpart_or_a_reason() -> None:
    paired = " ".join(pair.expression for pair in equivalents().values())
    used = set(re.findall(r"\b(?:mx|mnn)(?:\.\w+)+", paired))
    alone = [name for names in ALONE.values() for name in names.split()]
    assert len(alone) == len(set(alone))
    assert not set(alone) & THERE.keys()
    assert public_names() - used - THERE.keys() == set(alone) & public_names()
    assert not used & {*alone, *THERE}
