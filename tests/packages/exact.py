"""Attention written out in float64: what every stand-in is compared with."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def visible(queries: int, keys: int, causal: bool = False, window: tuple[int, int] = (-1, -1)) -> Tensor:
    """Which query sees which key, both aligned at their ends."""
    left, right = window
    right = 0 if causal else right
    seen = torch.ones(queries, keys, dtype=torch.bool)
    for query in range(queries):
        for key in range(keys):
            distance = key - (query + keys - queries)
            seen[query, key] = (left < 0 or -distance <= left) and (right < 0 or distance <= right)
    return seen


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The result and the logarithm of the sums. Tensors are (batch, length, heads, width); rows without keys are 0."""
    q, k, v = (each.double().transpose(1, 2) for each in (q, k, v))
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], dim=1) for each in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    queries, keys = scores.shape[-2:]
    if slopes is not None:
        distance = (torch.arange(queries)[:, None] + keys - queries - torch.arange(keys)).abs()
        scores = scores - slopes.double().reshape(-1, q.shape[1], 1, 1) * distance
    if bias is not None:
        scores = scores + bias.double()
    seen = visible(queries, keys, causal, window)
    scores = scores.masked_fill(~seen, -math.inf)
    empty = ~seen.any(dim=-1)
    weights = torch.softmax(scores.masked_fill(empty[:, None], 0.0), dim=-1).masked_fill(empty[:, None], 0.0)
    lse = scores.masked_fill(empty[:, None], 0.0).logsumexp(dim=-1).masked_fill(empty, math.inf)
    return (weights @ v).transpose(1, 2), lse
