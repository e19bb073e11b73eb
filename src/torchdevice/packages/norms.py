"""Normalisations of several packages, by torch's own. They compute in float32 and return the dtype of the input."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


def layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float, shape: Sequence[int] | None = None
) -> Tensor:
    """LayerNorm over the last axes. Weights may have another dtype than x."""
    shape = weight.shape if shape is None and weight is not None else shape or x.shape[-1:]
    if all(part is None or part.dtype == x.dtype for part in (weight, bias)):
        return F.layer_norm(x, shape, weight, bias, epsilon)
    wide = torch.promote_types(x.dtype, torch.float32)
    weight, bias = (None if part is None else part.to(wide) for part in (weight, bias))
    return F.layer_norm(x.to(wide), shape, weight, bias, epsilon).to(x.dtype)


def rms_norm(
    x: Tensor, weight: Tensor | None, epsilon: float, bias: Tensor | None = None, shape: Sequence[int] | None = None
) -> Tensor:
    """RMSNorm over the last axes. Weights may have another dtype than x."""
    shape = weight.shape if shape is None and weight is not None else shape or x.shape[-1:]
    wide = torch.promote_types(x.dtype, torch.float32)
    weights = None if weight is None else weight.to(wide)
    normed = F.rms_norm(x.to(wide), shape, weights, epsilon)
    return (normed if bias is None else normed + bias).to(x.dtype)
