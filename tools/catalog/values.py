"""Runs the pairs of `catalog.mlx`: the same small values on both sides, the results compared."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch

from tools.catalog.mlx import Equivalent, equivalents

CLOSE = 2e-4


def inputs() -> dict[str, Any]:
    """The values that pairs are written over, as NumPy arrays."""
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> Any:
        return (rng.permutation(math.prod(shape)).reshape(shape) / math.prod(shape) * 0.9 + 0.05).astype("float32")

    p = floats(3, 3)
    return {
        "x": floats(3, 4),
        "y": floats(3, 4),
        "v": floats(4),
        "w": floats(4),
        "u": floats(3),
        "i": rng.integers(0, 4, (3, 4)),
        "j": rng.integers(0, 3, (3, 4)),
        "b": rng.integers(0, 2, (3, 4)) > 0,
        "c": rng.integers(0, 2, (3, 4)) > 0,
        "p": (p @ p.T + np.eye(3)).astype("float32"),
        "z": (floats(3, 4) + 1j * floats(3, 4)).astype("complex64"),
        "s": floats(3, 3, 3),
        "g": floats(2, 3, 8, 8),
        "k": floats(2, 3, 2, 2),
        "k1": floats(2, 3, 2),
        "k3": floats(2, 4, 4),
        "t": floats(3, 4),
        "a": floats(1, 2, 4, 8),
        "n": rng.integers(0, 3, (3, 2)),
        "l": rng.integers(0, 3, (3,)),
        "mx_sorted": np.sort(floats(5)),
    }


def disagreement(pair: Equivalent) -> str:
    """Empty if both sides give the same values."""
    import mlx.core as mx
    import mlx.nn as mnn

    given = inputs()
    ours = {name: torch.from_numpy(np.array(value)) for name, value in given.items()}
    theirs = {name: mx.array(value) for name, value in given.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = eval(pair.call, {"torch": torch, "F": torch.nn.functional, "math": math, **ours})
        have = eval(pair.expression, {"mx": mx, "mnn": mnn, "math": math, **theirs})
    want, have = _flat(want), _flat(have)
    if len(want) != len(have):
        return f"{len(have)} results instead of {len(want)}"
    for one, other in zip(want, have, strict=True):
        if one.shape != other.shape:
            return f"shape {other.shape} instead of {one.shape}"
        if not np.allclose(one, other, rtol=CLOSE, atol=CLOSE, equal_nan=True):
            return f"{other.ravel()[:4]} instead of {one.ravel()[:4]}"
    return ""


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return [leaf for item in value for leaf in _flat(item)]
    if isinstance(value, torch.Tensor):
        return [value.detach().resolve_conj().numpy()]
    return [np.array(value)]


def verified() -> tuple[frozenset[str], dict[str, str]]:
    """The names whose pairs agree, and what is wrong with the others."""
    wrong: dict[str, str] = {}
    for name, pair in equivalents().items():
        try:
            text = disagreement(pair)
        except Exception as error:  # reported, one by one
            text = f"{type(error).__name__}: {error}"
        if text:
            wrong[name] = " ".join(text.split())[:200]
    return frozenset(equivalents()) - frozenset(wrong), wrong
