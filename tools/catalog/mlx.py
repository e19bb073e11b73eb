"""The same in MLX: which function of torch has which expression there, and how far the equality goes. Imports no MLX.

The pairs are `mlx_pairs`. How far:

exact    one function of MLX, with the same arguments in the same order
mapped   an expression of MLX, or other argument names
partial  the same for the arguments shown, while torch's function takes more (layouts, modes) than MLX's
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tools.catalog.mlx_pairs import OTHER, SAME, SAME_ACTIVATION, SAME_FFT, SAME_LINALG, SAME_LOSS

EXACT, MAPPED, PARTIAL = "exact", "mapped", "partial"


@dataclass(frozen=True)
class Equivalent:
    """A torch function, a call of it, the MLX expression with the same values, and how far that goes."""

    name: str
    call: str
    expression: str
    confidence: str


# Layers whose MLX twin takes images with the channels last, or lacks modes of torch's.
_PARTIAL = re.compile(
    r"(conv|pool|upsample|interpolate|pad|norm\b|rot90|svd|qr|topk|kthvalue|median|nll_loss|cross_entropy)", re.I
)


@cache
def equivalents() -> dict[str, Equivalent]:
    """Every pair, by the name of torch's function."""
    return {each.name: each for each in (*_same(), *_other())}


def _same() -> Iterator[Equivalent]:
    groups = (
        (SAME, "torch", "mx"),
        (SAME_LINALG, "torch.linalg", "mx.linalg"),
        (SAME_FFT, "torch.fft", "mx.fft"),
        (SAME_ACTIVATION, "torch.nn.functional", "mnn"),
        (SAME_LOSS, "torch.nn.functional", "mnn.losses"),
    )
    for table, ours, theirs in groups:
        for arguments, names in table.items():
            for name in names.split():
                given = arguments
                if ours == "torch.linalg" and name not in ("norm", "cross"):
                    given = f"{arguments[:-1]}, stream=mx.cpu)"  # MLX has its decompositions on the CPU only
                yield Equivalent(f"{ours}.{name}", f"{ours}.{name}{arguments}", f"{theirs}.{name}{given}", EXACT)


def _other() -> Iterator[Equivalent]:
    for call, expression in OTHER.items():
        path = re.match(r"[\w.]+", call)
        assert path is not None
        name = re.sub(r"^F\.", "torch.nn.functional.", path[0])
        yield Equivalent(name, call, expression, PARTIAL if _PARTIAL.search(name) else MAPPED)
