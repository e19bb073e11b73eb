"""flash_attn.layers.rotary: rotary position embeddings by torch's multiplications."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchdevice.packages.counting import counted

_MODULE = "flash_attn.layers.rotary"
_BY = "multiplications by cosine and sine"


def _turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Rotates the first `2 × cos.shape[-1]` entries of each head. cos and sin have the shape of x without heads."""
    width = 2 * cos.shape[-1]
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    wide = torch.promote_types(x.dtype, torch.float32)
    part = x[..., :width].to(wide)
    cos, sin = cos.to(wide), sin.to(wide)
    if interleaved:
        even, odd = part[..., ::2], part[..., 1::2]
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
    else:
        first, second = part.chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
    return torch.cat((turned.to(x.dtype), x[..., width:]), dim=-1)


def rotate(
    x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, offsets: Tensor | int = 0, moving: bool = True
) -> Tensor:
    """x is (batch, length, heads, width). Position n of a sequence is `offset + n`, without `moving` it is `offset`."""
    steps = torch.arange(x.shape[1], device=x.device) if moving else x.new_zeros(x.shape[1], dtype=torch.long)
    start = offsets.to(x.device).long()[:, None] if isinstance(offsets, Tensor) else offsets
    places = (steps[None, :] + start).expand(len(x), -1)
    return _turned(x, cos[places], sin[places], interleaved)


def _kept(x: Tensor, turned: Tensor) -> Tensor:
    """Writes the rotated values to `x.data`, as flash_attn's kernel does, without a record in autograd."""
    x.data.copy_(turned.detach())
    return turned


@counted(f"{_MODULE}.apply_rotary_emb", _BY)
def apply_rotary_emb(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: Tensor | int = 0,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
) -> Tensor:
    """Rotates x by its position: (batch, length, heads, width), or packed sequences (total, heads, width)."""
    return _rotated(x, cos, sin, interleaved, inplace, seqlen_offsets, cu_seqlens)


def _rotated(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool,
    inplace: bool,
    seqlen_offsets: Tensor | int,
    cu_seqlens: Tensor | None,
) -> Tensor:
    if cu_seqlens is None:
        turned = rotate(x, cos, sin, interleaved, seqlen_offsets)
    else:
        starts = cu_seqlens.to(x.device).long()
        sequence = torch.repeat_interleave(torch.arange(len(starts) - 1, device=x.device), starts.diff())
        places = torch.arange(len(sequence), device=x.device) - starts[sequence]
        places = places + (seqlen_offsets.long()[sequence] if isinstance(seqlen_offsets, Tensor) else seqlen_offsets)
        turned = torch.cat((_turned(x[: len(places)], cos[places], sin[places], interleaved), x[len(places) :]))
    return x.copy_(turned) if inplace else turned


@counted(f"{_MODULE}.apply_rotary_emb_torch", _BY)
def apply_rotary_emb_torch(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """Rotates x by its position, from position 0 on."""
    return rotate(x, cos, sin, interleaved)


@counted(f"{_MODULE}.apply_rotary_emb_qkv_", _BY)
def apply_rotary_emb_qkv_(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    cos_k: Tensor | None = None,
    sin_k: Tensor | None = None,
    interleaved: bool = False,
    seqlen_offsets: Tensor | int = 0,
    num_heads_q: int | None = None,
) -> Tensor:
    """Rotates queries and keys of (batch, length, 3, heads, width), or with all heads in one axis, in place."""
    cos_k, sin_k = cos if cos_k is None else cos_k, sin if sin_k is None else sin_k
    if qkv.dim() == 5:
        q, k, v = qkv.unbind(2)
    else:
        assert num_heads_q is not None
        others = (qkv.shape[2] - num_heads_q) // 2
        q, k, v = qkv.split((num_heads_q, others, others), dim=2)
    q = rotate(q, cos, sin, interleaved, seqlen_offsets)
    k = rotate(k, cos_k, sin_k, interleaved, seqlen_offsets)
    return _kept(qkv, torch.stack((q, k, v), dim=2) if qkv.dim() == 5 else torch.cat((q, k, v), dim=2))


@counted(f"{_MODULE}.apply_rotary_emb_kv_", _BY)
def apply_rotary_emb_kv_(
    kv: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False, seqlen_offsets: Tensor | int = 0
) -> Tensor:
    """Rotates the keys of (batch, length, 2, heads, width) in place."""
    k, v = kv.unbind(2)
    return _kept(kv, torch.stack((rotate(k, cos, sin, interleaved, seqlen_offsets), v), dim=2))


@counted("flash_attn.ops.triton.rotary.apply_rotary", _BY)
def apply_rotary(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    seqlen_offsets: Tensor | int = 0,
    cu_seqlens: Tensor | None = None,
    max_seqlen: int | None = None,
    interleaved: bool = False,
    inplace: bool = False,
    conjugate: bool = False,
) -> Tensor:
    """The kernel of the functions above, without gradients. `conjugate` inverts the rotation."""
    sin = -sin if conjugate else sin
    with torch.no_grad():
        return _rotated(x, cos, sin, interleaved, inplace, seqlen_offsets, cu_seqlens)


@counted(f"{_MODULE}.RotaryEmbedding", _BY)
class RotaryEmbedding(torch.nn.Module):
    """Caches cosines and sines of the used positions, and rotates queries and keys in place."""

    inv_freq: Tensor
    scale: Tensor | None

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        interleaved: bool = False,
        scale_base: float | None = None,
        device: Any = None,
        pos_idx_in_fp32: bool = True,
    ) -> None:
        super().__init__()
        self.dim, self.base, self.interleaved = dim, float(base), interleaved
        self.scale_base, self.pos_idx_in_fp32 = scale_base, pos_idx_in_fp32
        self.register_buffer("inv_freq", self._compute_inv_freq(device), persistent=False)
        steps = torch.arange(0, dim, 2, device=device, dtype=torch.float32)
        scale = None if scale_base is None else (steps + 0.4 * dim) / (1.4 * dim)
        self.register_buffer("scale", scale, persistent=False)
        self._seq_len_cached = 0
        self._cos_cached: Tensor | None = None  # names that subclasses use
        self._sin_cached: Tensor | None = None
        self._cos_k_cached: Tensor | None = None
        self._sin_k_cached: Tensor | None = None

    def _compute_inv_freq(self, device: Any = None) -> Tensor:
        return 1.0 / self.base ** (torch.arange(0, self.dim, 2, device=device, dtype=torch.float32) / self.dim)

    def _update_cos_sin_cache(self, seqlen: int, device: Any = None, dtype: Any = None) -> None:
        kept = self._cos_cached
        if kept is not None and seqlen <= self._seq_len_cached and kept.device == device and kept.dtype == dtype:
            return
        self._seq_len_cached = seqlen
        exact = torch.float32 if self.pos_idx_in_fp32 else self.inv_freq.dtype
        rounded = self.pos_idx_in_fp32 and self.inv_freq.dtype != torch.float32  # after `model.half()`
        powers = self._compute_inv_freq(device) if rounded else self.inv_freq.to(device)
        angles = torch.outer(torch.arange(seqlen, device=device, dtype=exact), powers)
        cos, sin = angles.cos(), angles.sin()
        if self.scale is None or self.scale_base is None:
            self._cos_cached, self._sin_cached = cos.to(dtype), sin.to(dtype)
            return
        power = (torch.arange(seqlen, dtype=self.scale.dtype, device=device) - seqlen // 2) / self.scale_base
        scale = self.scale.to(device) ** power[:, None]
        self._cos_cached, self._sin_cached = (cos * scale).to(dtype), (sin * scale).to(dtype)
        self._cos_k_cached, self._sin_k_cached = (cos / scale).to(dtype), (sin / scale).to(dtype)

    def forward(
        self,
        qkv: Tensor,
        kv: Tensor | None = None,
        seqlen_offset: Tensor | int = 0,
        max_seqlen: int | None = None,
        num_heads_q: int | None = None,
    ) -> Any:
        """Rotates qkv. With kv, rotates the queries in `qkv` and the keys in `kv`."""
        furthest = int(seqlen_offset.max()) if isinstance(seqlen_offset, Tensor) else seqlen_offset
        self._update_cos_sin_cache(max(max_seqlen or 0, qkv.shape[1] + furthest), qkv.device, qkv.dtype)
        cos, sin, cos_k, sin_k = self._cos_cached, self._sin_cached, self._cos_k_cached, self._sin_k_cached
        assert cos is not None
        assert sin is not None
        if kv is None:
            return apply_rotary_emb_qkv_(
                qkv, cos, sin, cos_k, sin_k, self.interleaved, seqlen_offset, num_heads_q=num_heads_q
            )
        q = _kept(qkv, rotate(qkv, cos, sin, self.interleaved, seqlen_offset))
        cos_k, sin_k = cos if cos_k is None else cos_k, sin if sin_k is None else sin_k
        return q, apply_rotary_emb_kv_(kv, cos_k, sin_k, self.interleaved, seqlen_offset)


apply_rotary_emb_func = apply_rotary_emb  # programs use both names
