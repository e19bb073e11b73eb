"""flash_attn.modules.mha: attention without projections, as layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchdevice.packages import flash_attn
from torchdevice.packages.flash_attn import Window


class _Attention(torch.nn.Module):
    def __init__(
        self,
        causal: bool = False,
        softmax_scale: float | None = None,
        attention_dropout: float = 0.0,
        window_size: Window = (-1, -1),
        alibi_slopes: Tensor | None = None,
        deterministic: bool = False,
    ) -> None:
        super().__init__()
        self.causal, self.softmax_scale, self.window_size = causal, softmax_scale, window_size
        self.drop = torch.nn.Dropout(attention_dropout)
        self.register_buffer("alibi_slopes", alibi_slopes, persistent=False)

    def _asked(self, causal: bool | None) -> dict[str, Any]:
        return {
            "dropout_p": self.drop.p if self.training else 0.0,
            "softmax_scale": self.softmax_scale,
            "causal": self.causal if causal is None else causal,
            "window_size": self.window_size,
            "alibi_slopes": self.alibi_slopes,
        }


class FlashSelfAttention(_Attention):
    """Attention of queries, keys and values in one tensor, packed or not."""

    def forward(
        self,
        qkv: Tensor,
        causal: bool | None = None,
        cu_seqlens: Tensor | None = None,
        max_seqlen: int | None = None,
    ) -> Tensor:
        """qkv is (batch, length, 3, heads, width), with `cu_seqlens` (total, 3, heads, width)."""
        if cu_seqlens is None:
            return flash_attn.flash_attn_qkvpacked_func(qkv, **self._asked(causal))
        return flash_attn.flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen or 0, **self._asked(causal))


class FlashCrossAttention(_Attention):
    """Attention of queries over keys and values in one tensor, packed or not."""

    def forward(
        self,
        q: Tensor,
        kv: Tensor,
        causal: bool | None = None,
        cu_seqlens: Tensor | None = None,
        max_seqlen: int | None = None,
        cu_seqlens_k: Tensor | None = None,
        max_seqlen_k: int | None = None,
    ) -> Tensor:
        """kv is (batch, length, 2, heads, width), with `cu_seqlens` (total, 2, heads, width)."""
        if cu_seqlens is None or cu_seqlens_k is None:
            return flash_attn.flash_attn_kvpacked_func(q, kv, **self._asked(causal))
        sizes = max_seqlen or 0, max_seqlen_k or 0
        return flash_attn.flash_attn_varlen_kvpacked_func(
            q, kv, cu_seqlens, cu_seqlens_k, *sizes, **self._asked(causal)
        )
