"""flash_attn.modules.mha: attention as layers, without projections and with them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torchdevice.packages import flash_attn
from torchdevice.packages.counting import counted
from torchdevice.packages.flash_attn import Window
from torchdevice.packages.flash_attn_rotary import RotaryEmbedding
from torchdevice.packages.refusals import refuse_arguments


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


def get_alibi_slopes(nheads: int) -> list[float]:
    """The slopes of ALiBi for a number of heads."""
    near = 2 ** int(math.log2(nheads))
    slopes = [2 ** (-8 * (head + 1) / near) for head in range(near)]
    return slopes if near == nheads else slopes + get_alibi_slopes(2 * near)[::2][: nheads - near]


@counted("flash_attn.modules.mha.MHA", "torch.nn.Linear and scaled_dot_product_attention")
class MHA(torch.nn.Module):
    """Self-attention or cross-attention with projections. The number of key heads may be smaller."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_heads_kv: int | None = None,
        cross_attn: bool = False,
        qkv_proj_bias: bool = True,
        out_proj_bias: bool = True,
        dropout: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        layer_idx: int | None = None,
        dwconv: bool = False,
        rotary_emb_dim: int = 0,
        rotary_emb_base: float = 10000.0,
        rotary_emb_scale_base: float | None = None,
        rotary_emb_interleaved: bool = False,
        use_alibi: bool = False,
        window_size: Window = (-1, -1),
        fused_bias_fc: bool = False,
        use_flash_attn: bool = False,
        return_residual: bool = False,
        checkpointing: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        refuse_arguments("flash_attn.modules.mha.MHA", "the stand-in does not support convolutions", {"dwconv": dwconv})
        where = {"device": device, "dtype": dtype}
        self.embed_dim, self.num_heads, self.num_heads_kv = embed_dim, num_heads, num_heads_kv or num_heads
        assert num_heads % self.num_heads_kv == 0, "num_heads must be divisible by num_heads_kv"
        assert embed_dim % num_heads == 0, "embed_dim must be divisible by num_heads"
        self.head_dim = embed_dim // num_heads
        self.cross_attn, self.causal, self.layer_idx, self.rotary_emb_dim = (
            cross_attn,
            causal,
            layer_idx,
            rotary_emb_dim,
        )
        self.use_flash_attn, self.return_residual, self.checkpointing = use_flash_attn, return_residual, checkpointing
        if rotary_emb_dim > 0:
            assert not cross_attn, "MHA with rotary embedding does not support cross-attention yet"
            self.rotary_emb = RotaryEmbedding(
                rotary_emb_dim, rotary_emb_base, rotary_emb_interleaved, rotary_emb_scale_base, device
            )
        others = 2 * self.head_dim * self.num_heads_kv
        if cross_attn:
            self.Wq = torch.nn.Linear(embed_dim, embed_dim, bias=qkv_proj_bias, **where)
            self.Wkv = torch.nn.Linear(embed_dim, others, bias=qkv_proj_bias, **where)
        else:
            self.Wqkv = torch.nn.Linear(embed_dim, embed_dim + others, bias=qkv_proj_bias, **where)
        slopes = torch.tensor(get_alibi_slopes(num_heads), device=device) if use_alibi else None
        options = causal, softmax_scale, dropout, window_size, slopes
        self.inner_attn, self.inner_cross_attn = FlashSelfAttention(*options), FlashCrossAttention(*options)
        self.out_proj = torch.nn.Linear(embed_dim, embed_dim, bias=out_proj_bias, **where)

    def forward(
        self,
        x: Tensor,
        x_kv: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        max_seqlen: int | None = None,
        mixer_subset: Any = None,
        inference_params: Any = None,
        **options: Any,
    ) -> Any:
        """x is (batch, length, width), with `cu_seqlens` (total, width); True in the mask keeps a key."""
        why = "the stand-in has no cache: pass whole sequences, or call flash_attn_with_kvcache"
        refuse_arguments("flash_attn.modules.mha.MHA", why, {"inference_params": inference_params})
        if key_padding_mask is not None and (cu_seqlens is not None or self.cross_attn):
            raise NotImplementedError("key_padding_mask is only for self-attention of padded sequences")
        q, kv = self._projected(x, x_kv, mixer_subset)
        if self.rotary_emb_dim > 0:
            q, kv = self.rotary_emb(q, kv)
        asked = (q, kv, key_padding_mask, cu_seqlens, max_seqlen, options)
        inner = checkpoint(self._attend, *asked, use_reentrant=False) if self.checkpointing else self._attend(*asked)
        out = self.out_proj(inner.flatten(-2))
        return (out, x) if self.return_residual else out

    def _projected(self, x: Tensor, other: Tensor | None, subset: Any) -> tuple[Tensor, Tensor]:
        if self.cross_attn:
            q, kv = self.Wq(x if subset is None else x[:, subset]), self.Wkv(x if other is None else other)
        else:
            assert other is None
            assert subset is None
            q, kv = self.Wqkv(x).tensor_split((self.embed_dim,), dim=-1)
        return q.unflatten(-1, (-1, self.head_dim)), kv.unflatten(-1, (2, -1, self.head_dim))

    def _attend(
        self, q: Tensor, kv: Tensor, mask: Tensor | None, starts: Tensor | None, longest: int | None, options: Any
    ) -> Tensor:
        if mask is None:
            return self.inner_cross_attn(q, kv, None, starts, longest, starts, longest, **options)
        # As in flash-attn: both masks are added, so a query without visible keys attends to all of them.
        k, v = (part.repeat_interleave(self.num_heads // self.num_heads_kv, dim=2) for part in kv.unbind(2))
        bias = q.new_zeros(len(q), 1, q.shape[1], k.shape[1]).masked_fill(~mask.bool()[:, None, None, :], -10000.0)
        if options.get("causal", self.causal):
            bias = bias + torch.full_like(bias[:1], -10000.0).triu(1)
        dropout, scale = self.inner_attn.drop.p if self.training else 0.0, self.inner_attn.softmax_scale
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, bias, dropout, scale=scale).transpose(1, 2)
