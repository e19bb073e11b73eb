"""Digests of results: what is equal, what is not, and what a device may change without it being a difference."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tools.catalog.bench import Bench, digest
from tools.catalog.compare import differs

X = torch.tensor([[0.5, 2.0], [float("nan"), -1.0]])
SAME: list[tuple[Any, Any]] = [
    (X, X.clone()),
    (X, X + 1e-6),
    (X.to_sparse(), X.to_sparse()),
    ("cuda:0", "cpu"),
    (torch.device("cuda", 0), torch.device("cpu")),
    ({"a": [1, 2.0]}, {"a": [1, 2.0]}),
    (torch.nn.Identity(), torch.nn.Identity()),
    (float("nan"), float("nan")),
]
OTHER: list[tuple[Any, Any]] = [
    (X, X + 0.01),
    (X, X.double()),
    (X, X[0]),
    (X, None),
    (X, X.nan_to_num()),
    (True, 1),
    (1, 2),
    ("a", "b"),
    ([1], [1, 2]),
    ({"a": 1}, {"b": 1}),
    (torch.tensor([True]), torch.tensor([False])),
    (torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)),
    (torch.ones(500), torch.cat([torch.ones(499), torch.zeros(1)]).flip(0)),
]


@pytest.mark.parametrize(("want", "have"), SAME)
def test_the_same_is_the_same(want: Any, have: Any) -> None:
    assert differs(digest(want), digest(have)) == ""


@pytest.mark.parametrize(("want", "have"), OTHER)
def test_what_differs_is_seen(want: Any, have: Any) -> None:
    assert differs(digest(want), digest(have)) != ""


def test_a_host_without_float64_may_narrow_and_only_that() -> None:
    want = digest(X.double())
    assert differs(want, digest(X), narrowing=True) == ""
    assert differs(want, digest(X)) != ""
    assert differs(want, digest(X.half()), narrowing=True) != ""


def test_values_that_are_no_two_times_the_same_are_not_compared() -> None:
    assert differs(digest(1.0), digest(2.0), values=False) == ""
    assert differs(digest(X), digest("text"), values=False) != ""


def test_the_bench_gives_the_same_each_time() -> None:
    one, other = Bench("cpu"), Bench("cpu")
    assert torch.equal(one.T(3, 3), other.T(3, 3))
    assert differs(digest(one.net()), digest(other.net())) == ""
