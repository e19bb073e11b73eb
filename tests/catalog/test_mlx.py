"""Every pair of the cross-map is run: the same values on both sides."""

from __future__ import annotations

import functools

import pytest
import torch

pytest.importorskip("mlx.core")
from tests.catalog.values import disagreement
from torchdevice.catalog.mlx import EXACT, MAPPED, NO, PARTIAL, Equivalent, equivalent_of, equivalents
from torchdevice.catalog.store import load_results


@pytest.mark.parametrize("pair", equivalents().values(), ids=lambda pair: pair.name)
def test_both_sides_give_the_same_values(pair: Equivalent) -> None:
    assert functools.reduce(getattr, pair.name.split(".")[1:], torch) is not None
    assert disagreement(pair) == ""


def test_a_wrong_pair_is_seen() -> None:
    assert disagreement(Equivalent("torch.sin", "torch.sin(x)", "mx.cos(x)", EXACT)) != ""
    assert disagreement(Equivalent("torch.sum", "torch.sum(x)", "mx.sum(x, 0)", EXACT)) != ""


def test_there_are_enough_and_the_data_says_so() -> None:
    assert len(equivalents()) >= 200
    assert load_results().mlx == frozenset(equivalents())


def test_a_method_has_the_equivalent_of_its_function() -> None:
    verified = frozenset({"torch.add"})
    assert equivalent_of("torch.Tensor.add", verified).expression == "mx.add(x, y)"
    assert equivalent_of("torch.sub", verified).confidence == NO
    assert {pair.confidence for pair in equivalents().values()} == {EXACT, MAPPED, PARTIAL}
