"""Every pair of the cross-map is run: the same values on both sides."""

from __future__ import annotations

import functools

import pytest
import torch

pytest.importorskip("mlx.core")
from tools.catalog.mlx import EXACT, MAPPED, PARTIAL, Equivalent, equivalents
from tools.catalog.values import disagreement
from torchdevice.catalog.entries import equivalent_of
from torchdevice.catalog.store import load_results


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
