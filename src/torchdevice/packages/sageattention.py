"""sageattention: attention with quantised scores, computed here by torch's attention without quantisation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchdevice.packages.counting import counted
from torchdevice.packages.refusals import refuse_arguments


@counted("sageattention.sageattn", "scaled_dot_product_attention")
def sageattn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensor_layout: str = "HND",
    is_causal: bool = False,
    sm_scale: float | None = None,
    return_lse: bool = False,
    **options: Any,
) -> Any:
    """Attention of (batch, heads, length, width), or with "NHD" (batch, length, heads, width)."""
    refuse_arguments("sageattention.sageattn", "the stand-in has only one implementation", options)
    swap = tensor_layout == "NHD"
    q, k, v = (each.transpose(1, 2) if swap else each for each in (q, k, v))
    scale = q.shape[-1] ** -0.5 if sm_scale is None else sm_scale
    grouped = q.shape[1] != k.shape[1]
    out = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=is_causal, scale=scale, enable_gqa=grouped
    )
    out = out.transpose(1, 2) if swap else out
    if not return_lse:
        return out
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scores = (q.float() @ k.float().transpose(-1, -2)) * scale
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return out, scores.logsumexp(dim=-1)
