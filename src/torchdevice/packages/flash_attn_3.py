"""flash_attn_interface: the functions of flash-attn 3, which differ from those of version 2 in their arguments."""

from __future__ import annotations

from torch import Tensor

from torchdevice.packages import flash_attn
from torchdevice.packages.flash_attn import Result, Window, options
from torchdevice.packages.refusals import refuse_arguments

_WHY = "the stand-in for flash-attn 3 does not support float8, absorbed values and chunks"


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Result:
    """Attention of q, k and v."""
    api = "flash_attn_interface.flash_attn_func"
    scales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    refuse_arguments(api, _WHY, {"qv": qv, "attention_chunk": attention_chunk, **scales})
    asked = options(softmax_scale, causal, window_size, softcap, None)
    result = flash_attn.dense(api, q, k, v, asked, return_attn_probs)
    return result[:2] if return_attn_probs else result


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    qv: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    deterministic: bool = False,
    sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Result:
    """Attention of packed sequences. Only the first `seqused_k` keys of each are used."""
    api = "flash_attn_interface.flash_attn_varlen_func"
    scales = {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale}
    refuse_arguments(api, _WHY, {"qv": qv, "seqused_q": seqused_q, "attention_chunk": attention_chunk, **scales})
    asked = options(softmax_scale, causal, window_size, softcap, None)
    result = flash_attn.varlen(api, q, k, v, cu_seqlens_q, cu_seqlens_k, asked, return_attn_probs, used=seqused_k)
    return result[:2] if return_attn_probs else result


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    qv: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: Tensor | int | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    page_table: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k_new: Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: Tensor | None = None,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: Tensor | None = None,
    num_splits: int = 0,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    return_softmax_lse: bool = False,
) -> Result:
    """Attention over a cache. New keys and values are written to it first."""
    refuse_arguments(
        "flash_attn_interface.flash_attn_with_kvcache",
        _WHY,
        {
            "qv": qv,
            "cu_seqlens_q": cu_seqlens_q,
            "cu_seqlens_k_new": cu_seqlens_k_new,
            "rotary_seqlens": rotary_seqlens,
            "q_descale": q_descale,
            "k_descale": k_descale,
            "v_descale": v_descale,
            "attention_chunk": attention_chunk,
        },
    )
    return flash_attn.flash_attn_with_kvcache(
        q,
        k_cache,
        v_cache,
        k,
        v,
        rotary_cos,
        rotary_sin,
        cache_seqlens,
        cache_batch_idx,
        cache_leftpad,
        page_table,
        softmax_scale,
        causal,
        window_size,
        softcap,
        rotary_interleaved,
        return_softmax_lse=return_softmax_lse,
    )
