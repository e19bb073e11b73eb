"""The names of flash-attn 1: flash_attn.flash_attention, and `unpadded` for `varlen` of version 2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchdevice.packages import flash_attn
from torchdevice.packages.flash_attn import Result
from torchdevice.packages.flash_attn_padding import pad_input, unpad_input
from torchdevice.packages.refusals import refuse_arguments

_WHY = "version 1 counted causal masks from the first key, and the stand-in counts from the last, as version 2 does"


def flash_attn_unpadded_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float | None = None,
    causal: bool = False,
    return_attn_probs: bool = False,
    deterministic: bool = False,
) -> Result:
    """Attention of packed sequences, under the name of version 1."""
    uneven = causal and not torch.equal(cu_seqlens_q, cu_seqlens_k)
    refuse_arguments("flash_attn_unpadded_func", _WHY, {"causal and keys of other lengths": uneven})
    starts = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    asked: dict[str, Any] = {"causal": causal, "return_attn_probs": return_attn_probs}
    return flash_attn.flash_attn_varlen_func(q, k, v, *starts, dropout_p, softmax_scale, **asked)


def flash_attn_unpadded_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float | None = None,
    causal: bool = False,
    return_attn_probs: bool = False,
    deterministic: bool = False,
) -> Result:
    """Attention of packed sequences with keys and values in one tensor, (total, 2, heads, width)."""
    starts = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    asked = dropout_p, softmax_scale, causal, return_attn_probs
    k, v = kv.unbind(1)
    return flash_attn_unpadded_func(q, k, v, *starts, *asked)


def flash_attn_unpadded_qkvpacked_func(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    dropout_p: float,
    softmax_scale: float | None = None,
    causal: bool = False,
    return_attn_probs: bool = False,
    deterministic: bool = False,
) -> Result:
    """Attention of packed sequences with queries, keys and values in one tensor, (total, 3, heads, width)."""
    asked: dict[str, Any] = {"causal": causal, "return_attn_probs": return_attn_probs}
    return flash_attn.flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, dropout_p, softmax_scale, **asked)


class FlashAttention(torch.nn.Module):
    """Attention of queries, keys and values in one tensor. The second result, the weights, is None."""

    def __init__(self, softmax_scale: float | None = None, attention_dropout: float = 0.0) -> None:
        super().__init__()
        self.softmax_scale, self.dropout_p = softmax_scale, attention_dropout

    def forward(
        self,
        qkv: Tensor,
        key_padding_mask: Tensor | None = None,
        causal: bool = False,
        cu_seqlens: Tensor | None = None,
        max_s: int | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, None]:
        """qkv is (batch, length, 3, heads, width), with `cu_seqlens` (total, 3, heads, width). True keeps a token."""
        assert not need_weights
        dropout = self.dropout_p if self.training else 0.0
        asked: dict[str, Any] = {"softmax_scale": self.softmax_scale, "causal": causal}
        if cu_seqlens is not None:
            return flash_attn.flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_s or 0, dropout, **asked), None
        if key_padding_mask is None:
            return flash_attn.flash_attn_qkvpacked_func(qkv, dropout, **asked), None
        packed, indices, starts, longest, _ = unpad_input(qkv, key_padding_mask)
        out = flash_attn.flash_attn_varlen_qkvpacked_func(packed, starts, longest, dropout, **asked)
        return pad_input(out, indices, *qkv.shape[:2]), None


class FlashMHA(torch.nn.Module):
    """Attention of queries, keys and values, with projections."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        bias: bool = True,
        batch_first: bool = True,
        attention_dropout: float = 0.0,
        causal: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        assert batch_first
        assert embed_dim % num_heads == 0, "self.kdim must be divisible by num_heads"
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.causal = causal
        self.Wqkv = torch.nn.Linear(embed_dim, 3 * embed_dim, bias=bias, device=device, dtype=dtype)
        self.inner_attn = FlashAttention(attention_dropout=attention_dropout)
        self.out_proj = torch.nn.Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)

    def forward(
        self, x: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = False
    ) -> tuple[Tensor, None]:
        """x is (batch, length, width)."""
        qkv = self.Wqkv(x).unflatten(-1, (3, self.num_heads, self.head_dim))
        out, weights = self.inner_attn(qkv, key_padding_mask, self.causal, need_weights=need_weights)
        return self.out_proj(out.flatten(-2)), weights
