"""xformers.ops: attention with its mask classes, and the small operators that models use.

A tensor is (batch, length, heads, width); without heads, or with groups of heads, it has one axis less or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from torchdevice.packages.attention import WAYS, Attended, Options, attend, is_fused
from torchdevice.packages.counting import count, counted
from torchdevice.packages.norms import rms_norm as _rms_norm
from torchdevice.packages.xformers_masks import AttentionBias, BlockDiagonalMask


def _attention(
    api: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | AttentionBias | None,
    dropout: float,
    scale: float | None,
    inner: bool = False,
) -> Attended:
    axes = query.dim()
    if axes == 3:
        query, key, value = (each.unsqueeze(2) for each in (query, key, value))
        bias = bias.unsqueeze(1) if isinstance(bias, Tensor) and bias.dim() == 3 else bias
    groups = query.shape[2:4]
    if axes == 5:
        query, key, value = (each.flatten(2, 3) for each in (query, key, value))
        bias = bias.flatten(1, 2) if isinstance(bias, Tensor) and bias.dim() == 5 else bias
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    asked = Options(scale=scale, dropout=dropout)
    count(api, WAYS[is_fused(asked, inner)])
    if isinstance(bias, BlockDiagonalMask):
        done = _blocks(q, k, v, bias, asked, inner)
    else:
        if isinstance(bias, AttentionBias):
            asked = bias.options(asked, q.shape[2], k.shape[2])
        elif bias is not None:
            asked = Options(scale, bias=bias, dropout=dropout)
        done = attend(q, k, v, asked, inner)
    out = done.out.transpose(1, 2).contiguous()
    if axes == 3:
        out = out.squeeze(2)
    return Attended(out.unflatten(2, groups) if axes == 5 else out, done.lse)


def _blocks(q: Tensor, k: Tensor, v: Tensor, bias: BlockDiagonalMask, asked: Options, inner: bool) -> Attended:
    """Attention of several sequences in a batch of one, separately for each."""
    parts = []
    for queries, keys in bias.blocks():
        one = bias.inside(asked, queries.stop - queries.start, keys.stop - keys.start)
        parts.append(attend(q[:, :, queries], k[:, :, keys], v[:, :, keys], one, inner))
    out = torch.cat([part.out for part in parts], dim=2)
    return Attended(out, torch.cat([part.lse for part in parts], dim=2) if inner else None)


def memory_efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | AttentionBias | None = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,
    output_dtype: torch.dtype | None = None,
) -> Tensor:
    """Attention with a bias: a tensor, or an object of a mask class."""
    given = query, key, value, attn_bias, p, scale
    out = _attention("xformers.ops.memory_efficient_attention", *given).out
    return out if output_dtype is None else out.to(output_dtype)


def memory_efficient_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | AttentionBias | None = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,
    output_dtype: torch.dtype | None = None,
) -> Tensor:
    """Attention with a bias, without gradients."""
    with torch.no_grad():
        return memory_efficient_attention(query, key, value, attn_bias, p, scale, output_dtype=output_dtype)


def memory_efficient_attention_forward_requires_grad(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | AttentionBias | None = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: Any = None,
    output_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention with a bias. Returns the result and the logarithm of the sums."""
    api = "xformers.ops.memory_efficient_attention_forward_requires_grad"
    done = _attention(api, query, key, value, attn_bias, p, scale, inner=True)
    assert done.lse is not None
    return done.out if output_dtype is None else done.out.to(output_dtype), done.lse


class AttentionOpBase:
    """An operator for the argument `op=`. Every operator is accepted, because there is only one implementation."""

    NAME = "torch"


class MemoryEfficientAttentionOp(AttentionOpBase):
    """Any operator."""


class MemoryEfficientAttentionCutlassOp(AttentionOpBase):
    """The operator of CUTLASS. Accepted and ignored."""


class MemoryEfficientAttentionFlashAttentionOp(AttentionOpBase):
    """The operator of flash-attn. Accepted and ignored."""


class MemoryEfficientAttentionCkOp(AttentionOpBase):
    """The operator of AMD. Accepted and ignored."""


@counted("xformers.ops.unbind", "unbind")
def unbind(x: Tensor, dim: int) -> tuple[Tensor, ...]:
    """The slices of x along an axis."""
    return x.unbind(dim)


@counted("xformers.ops.index_select_cat", "index_select")
def index_select_cat(sources: Sequence[Tensor], indices: Sequence[Tensor]) -> Tensor:
    """Selected rows of several tensors, flattened and concatenated."""
    return torch.cat([source[index.long()].flatten() for source, index in zip(sources, indices, strict=True)])


@counted("xformers.ops.scaled_index_add", "index_add")
def scaled_index_add(
    input: Tensor, index: Tensor, source: Tensor, scaling: Tensor | None = None, alpha: float = 1.0
) -> Tensor:
    """Adds scaled rows to selected rows of a tensor, in place."""
    scaled = source if scaling is None else source * scaling
    return input.index_add_(0, index.long(), scaled.to(input.dtype), alpha=alpha)


@counted("xformers.ops.rms_norm", "rms_norm")
def rms_norm(x: Tensor, weight: Tensor | None, eps: float = 1e-6) -> Tensor:
    """RMSNorm(x)."""
    return _rms_norm(x, weight, eps)


@counted("xformers.ops.RMSNorm", "rms_norm")
class RMSNorm(torch.nn.RMSNorm):
    """RMSNorm as a layer."""

    def __init__(self, dim: int, include_weight: bool = True, eps: float = 1e-6) -> None:
        super().__init__(dim, eps=eps, elementwise_affine=include_weight)


@counted("xformers.ops.swiglu", "silu")
def swiglu(
    x: Tensor,
    w1: Tensor,
    b1: Tensor | None,
    w2: Tensor,
    b2: Tensor | None,
    w3: Tensor,
    b3: Tensor | None,
    *,
    op: Any = None,
) -> Tensor:
    """A gated layer: (silu(x·w1) · (x·w2))·w3."""
    return F.linear(F.silu(F.linear(x, w1, b1)) * F.linear(x, w2, b2), w3, b3)


@counted("xformers.ops.SwiGLU", "silu")
class SwiGLU(torch.nn.Module):
    """The gated layer with its weights, packed or separate, with the names of checkpoints."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int | None = None,
        bias: bool = True,
        *,
        _pack_weights: bool = True,
    ) -> None:
        super().__init__()
        out_features = out_features or in_features
        self.w12 = torch.nn.Linear(in_features, 2 * hidden_features, bias=bias) if _pack_weights else None
        if not _pack_weights:
            self.w1 = torch.nn.Linear(in_features, hidden_features, bias=bias)
            self.w2 = torch.nn.Linear(in_features, hidden_features, bias=bias)
        self.w3 = torch.nn.Linear(hidden_features, out_features, bias=bias)
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        self.op = None

    def forward(self, x: Tensor) -> Tensor:
        """Applies the layer to x."""
        first, second = self.w12(x).chunk(2, dim=-1) if self.w12 is not None else (self.w1(x), self.w2(x))
        return self.w3(F.silu(first) * second)
