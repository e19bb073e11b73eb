"""Attention for all stand-ins: torch's fused operator if it supports the options, else explicit math.

Tensors are (batch, heads, length, width). Queries and keys are aligned at their ends, as flash-attn does: query `i`
has the position of key `i + keys - queries`. The result of a query without visible keys is zero. Large scores are
computed in blocks of queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.utils.checkpoint import checkpoint

WAYS = {True: "scaled_dot_product_attention", False: "explicit math"}  # fused or not → the name in the records

# The maximal number of scores in a block of explicit math, for all heads; and of elements of a shared mask.
MOST_SCORES, MOST_MASKED = 1 << 26, 1 << 24
LEAST_ROWS = 512  # the smallest block; a small window would need very small blocks
# Device types whose fused kernels use a key for several query heads. On others, keys are repeated.
_GROUPED = frozenset({"cpu", "cuda"})


@dataclass(frozen=True)
class Options:
    """The options of the softmax. `left`, `right`: the number of visible keys on each side of a query; None: all.

    `slopes` are the slopes of ALiBi, (heads) or (batch, heads). `bias` is added to the scores.
    """

    scale: float | None = None
    left: int | None = None
    right: int | None = None
    softcap: float = 0.0
    slopes: Tensor | None = None
    bias: Tensor | None = None
    dropout: float = 0.0


class Attended(NamedTuple):
    """The result. The logarithm of the sums and the probabilities are present only if requested.

    Probabilities that dropout removed have a minus sign.
    """

    out: Tensor
    lse: Tensor | None = None
    probabilities: Tensor | None = None


def is_fused(options: Options, inner: bool = False) -> bool:
    """Whether torch's fused operator supports the options."""
    return not (inner or options.softcap or options.slopes is not None)


def attend(query: Tensor, key: Tensor, value: Tensor, options: Options, inner: bool = False) -> Attended:
    """Attention with these options. `inner`: also return the sums and the probabilities."""
    fused = is_fused(options, inner)
    queries, keys = query.shape[2], key.shape[2]
    unseeing = min(queries, max(0, queries - keys - options.right)) if options.right is not None else 0
    if not keys:
        unseeing = queries
    if not unseeing and queries:
        return _seeing(query, key, value, options, fused, inner)
    # A product over zero elements gives zeros with gradients.
    out = query[..., :0] @ query.new_zeros(*query.shape[:2], 0, value.shape[3])
    if unseeing < queries:
        rest = _seeing(query[:, :, unseeing:], key, value, _rows(options, unseeing, queries), fused, inner)
        out = torch.cat((out[:, :, :unseeing], rest.out), dim=2)
    else:
        rest = Attended(out)
    if not inner:
        return Attended(out)
    lse = F.pad(rest.lse, (unseeing, 0), value=math.inf) if rest.lse is not None else _all(query, math.inf)
    seen = rest.probabilities
    missing = query.new_zeros(*query.shape[:3], keys) if seen is None else F.pad(seen, (0, 0, unseeing, 0))
    return Attended(out, lse, missing)


def _all(query: Tensor, value: float) -> Tensor:
    return query.new_full(query.shape[:3], value, dtype=torch.float32)


def _rows(options: Options, first: int, queries: int) -> Options:
    """Attention of the queries from `first` on."""
    bias = options.bias
    if bias is None or bias.shape[-2] != queries:
        return options
    return Options(**{**vars(options), "bias": bias[..., first:, :]})


def _seeing(query: Tensor, key: Tensor, value: Tensor, options: Options, fused: bool, inner: bool) -> Attended:
    """Attention in which each query has a visible key."""
    queries, keys = query.shape[2], key.shape[2]
    if fused and _is_plain(options, queries, keys):
        return Attended(_fused(query, key, value, None, options, is_causal=options.right is not None and queries > 1))
    compute = _fused_block if fused else _math_block
    if key.shape[1] != query.shape[1]:
        key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], dim=1) for each in (key, value))
    rows = queries if inner else _rows_of_a_block(query.shape[0] * query.shape[1], queries, keys, options, fused)
    if rows >= queries:
        return compute(query, key, value, Block(0, queries, 0, keys, keys - queries), options)
    return Attended(torch.cat([*_blocks(compute, query, key, value, rows, options)], dim=2))


def _is_plain(options: Options, queries: int, keys: int) -> bool:
    """Whether the fused operator needs no mask: full attention, or causal attention of a square."""
    if options.left is not None or options.bias is not None:
        return False
    return options.right is None or (options.right == 0 and (queries == keys or queries == 1))


def _rows_of_a_block(heads: int, queries: int, keys: int, options: Options, fused: bool) -> int:
    rows = MOST_MASKED // keys if fused and options.bias is None else MOST_SCORES // (heads * keys)
    if options.left is not None and options.right is not None:
        rows = min(rows, max(LEAST_ROWS, options.left + options.right + 1))
    return max(1, min(rows, queries))


class Block(NamedTuple):
    """A range of queries, the range of keys that any of them sees, and the position of query 0 among the keys."""

    first: int
    end: int
    lowest: int
    beyond: int
    shift: int

    def positions(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The positions of the queries among the keys, as a column, and those of the keys, as a row."""
        rows = torch.arange(self.first + self.shift, self.end + self.shift, device=device)[:, None]
        return rows, torch.arange(self.lowest, self.beyond, device=device)[None, :]

    def visible(self, options: Options, device: torch.device) -> Tensor | None:
        """The mask of visible keys per query. None if all keys are visible."""
        row, key = self.positions(device)
        seen = None
        if options.right is not None and self.first + self.shift + options.right + 1 < self.beyond:
            seen = key <= row + options.right
        if options.left is not None and self.end - 1 + self.shift - options.left > self.lowest:
            near = key >= row - options.left
            seen = near if seen is None else seen & near
        return seen


Compute = Callable[[Tensor, Tensor, Tensor, Block, Options], Attended]


def _blocks(
    compute: Compute, query: Tensor, key: Tensor, value: Tensor, rows: int, options: Options
) -> Iterator[Tensor]:
    """The result in blocks of queries, each with its visible keys. The backward pass computes a block again."""
    queries, keys = query.shape[2], key.shape[2]
    shift = keys - queries
    for first in range(0, queries, rows):
        end = min(queries, first + rows)
        lowest = 0 if options.left is None else max(0, first + shift - options.left)
        beyond = keys if options.right is None else min(keys, end + shift + options.right)
        block = Block(first, end, lowest, beyond, shift)
        some = Options(**{**vars(options), "bias": _cut(options.bias, block, queries, keys)})

        def run(query: Tensor, key: Tensor, value: Tensor, block: Block = block, some: Options = some) -> Tensor:
            return compute(query, key, value, block, some).out

        parts = query[:, :, first:end], key[:, :, lowest:beyond], value[:, :, lowest:beyond]
        if torch.is_grad_enabled() and any(part.requires_grad for part in parts):
            yield checkpoint(run, *parts, use_reentrant=False)
        else:
            yield run(*parts)


def _cut(bias: Tensor | None, block: Block, queries: int, keys: int) -> Tensor | None:
    if bias is None:
        return None
    bias = bias[..., block.first : block.end, :] if bias.shape[-2] == queries else bias
    return bias[..., block.lowest : block.beyond] if bias.shape[-1] == keys else bias


def _fused_block(query: Tensor, key: Tensor, value: Tensor, block: Block, options: Options) -> Attended:
    mask = block.visible(options, query.device)
    if options.bias is not None:
        bias = options.bias.to(query.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
    return Attended(_fused(query, key, value, mask, options))


def _fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Options, is_causal: bool = False
) -> Tensor:
    grouped = key.shape[1] != query.shape[1]
    if grouped and query.device.type not in _GROUPED:
        key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], dim=1) for each in (key, value))
        grouped = False
    return F.scaled_dot_product_attention(
        query, key, value, mask, options.dropout, is_causal, scale=options.scale, enable_gqa=grouped
    )


def _math_block(query: Tensor, key: Tensor, value: Tensor, block: Block, options: Options) -> Attended:
    """Explicit math in float32 or wider, as in flash-attn, also under autocast."""
    wide = torch.promote_types(query.dtype, torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        scale = query.shape[-1] ** -0.5 if options.scale is None else options.scale
        scores = (query.to(wide) * scale) @ key.to(wide).transpose(-1, -2)
        if options.softcap:
            scores = options.softcap * torch.tanh(scores / options.softcap)
        if options.slopes is not None:
            row, column = block.positions(query.device)
            slopes = options.slopes.to(wide).reshape(-1, query.shape[1], 1, 1)
            scores = scores - slopes * (row - column).abs()
        if options.bias is not None:
            scores = scores + options.bias.to(wide)
        seen = block.visible(options, query.device)
        if seen is not None:
            scores = scores.masked_fill(~seen, -math.inf)
        weights = scores.softmax(dim=-1)
        lse = scores.detach().logsumexp(dim=-1).float()
        kept, shown = weights, weights.detach().to(query.dtype)
        if options.dropout:
            dropped = torch.rand_like(weights) < options.dropout
            kept = weights.masked_fill(dropped, 0.0) / (1.0 - options.dropout)
            shown = torch.where(dropped, -shown, shown)
        return Attended((kept @ value.to(wide)).to(query.dtype), lse, shown)
