"""The functions of flash_attn 2. Tensors are (batch, length, heads, width), or packed along the length.

`attention` computes the softmax. This module handles the layout of each function: packed tensors, sequences of
different lengths, caches.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchdevice._torch import core
from torchdevice.packages.attention import WAYS, Attended, Options, attend, is_fused
from torchdevice.packages.counting import count
from torchdevice.packages.flash_attn_rotary import rotate

Window = Sequence[int]
Result = Any  # a tensor, or (out, softmax_lse, S_dmask) if the probabilities were requested


def options(
    scale: float | None, causal: bool, window: Window, softcap: float, slopes: Tensor | None, dropout: float = 0.0
) -> Options:
    """Options from the arguments of flash-attn. -1 is a window without an end. A causal window ends at the query."""
    left, right = (None if size < 0 else int(size) for size in window)
    return Options(scale, left, 0 if causal else right, softcap or 0.0, slopes, dropout=dropout)


def dense(api: str, q: Tensor, k: Tensor, v: Tensor, asked: Options, inner: bool) -> Result:
    """Attention of sequences of equal length."""
    count(api, WAYS[is_fused(asked, inner)])
    done = attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), asked, inner)
    out = done.out.transpose(1, 2).contiguous()
    return (out, done.lse, _dropped(done, asked)) if inner else out


def _dropped(done: Attended, asked: Options) -> Tensor | None:
    """The probabilities, which show the effect of dropout. Without dropout flash-attn returns an empty tensor."""
    return done.probabilities if asked.dropout else done.out.new_empty(0)


def ragged(
    api: str,
    q: Tensor,
    pairs: Sequence[tuple[Tensor, Tensor]],
    starts: Sequence[int],
    asked: Options,
    inner: bool,
) -> Result:
    """Attention of sequences of different lengths. `starts` separates the queries; keys and values are pairs."""
    count(api, WAYS[is_fused(asked, inner)])
    out = q.new_zeros(*q.shape[:2], pairs[0][1].shape[-1] if pairs else q.shape[-1])
    outs, sums, probabilities = [], [], []
    for number, (k, v) in enumerate(pairs):
        first, end = starts[number], starts[number + 1]
        slopes = asked.slopes[number] if asked.slopes is not None and asked.slopes.dim() == 2 else asked.slopes
        one = Options(**{**vars(asked), "slopes": slopes})
        query, key, value = (part.transpose(0, 1).unsqueeze(0) for part in (q[first:end], k, v))
        done = attend(query, key, value, one, inner)
        outs.append(done.out.squeeze(0).transpose(0, 1))
        if inner:
            sums.append(done.lse.squeeze(0))  # type: ignore[union-attr]
            probabilities.append(done.probabilities)
    outs.append(out[starts[len(pairs)] :])
    whole = torch.cat(outs)
    if not inner:
        return whole
    lse = torch.cat([*sums, q.new_zeros(q.shape[1], q.shape[0] - starts[len(pairs)], dtype=torch.float32)], dim=1)
    return whole, lse, _padded(probabilities) if asked.dropout else q.new_empty(0)


def _padded(parts: Sequence[Any]) -> Tensor:
    rows, columns = (max(part.shape[axis] for part in parts) for axis in (2, 3))
    pad = torch.nn.functional.pad
    return torch.cat([pad(part, (0, columns - part.shape[3], 0, rows - part.shape[2])) for part in parts])


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """Attention of q, k and v."""
    asked = options(softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p)
    return dense("flash_attn.flash_attn_func", q, k, v, asked, return_attn_probs)


def flash_attn_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """Attention with keys and values in one tensor, (batch, length, 2, heads, width)."""
    asked = options(softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p)
    k, v = kv.unbind(2)
    return dense("flash_attn.flash_attn_kvpacked_func", q, k, v, asked, return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """Attention with queries, keys and values in one tensor, (batch, length, 3, heads, width)."""
    asked = options(softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p)
    q, k, v = qkv.unbind(2)
    return dense("flash_attn.flash_attn_qkvpacked_func", q, k, v, asked, return_attn_probs)


def varlen(
    api: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    asked: Options,
    inner: bool,
    block_table: Tensor | None = None,
    used: Tensor | None = None,
) -> Result:
    """Attention of packed sequences. `block_table`: the keys are in pages. `used`: the number of keys of each."""
    starts, key_starts = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    lengths = [end - first for first, end in itertools.pairwise(key_starts)]
    if block_table is None and used is None and _is_even(starts, len(q)) and _is_even(key_starts, len(k)):
        number = len(starts) - 1
        q, k, v = (each.unflatten(0, (number, -1)) for each in (q, k, v))
        result = dense(api, q, k, v, asked, inner)
        if not inner:
            return result.flatten(0, 1)
        out, lse, probabilities = result
        return out.flatten(0, 1), lse.transpose(0, 1).flatten(1), probabilities
    if block_table is None and used is None and not inner:
        out = _by_flash_kernel(api, (q, k, v), (cu_seqlens_q, cu_seqlens_k), (starts, key_starts), asked)
        if out is not None:
            return out
    if used is not None:
        lengths = used.tolist()
    if block_table is None:
        pairs = [(k[at : at + size], v[at : at + size]) for at, size in zip(key_starts, lengths, strict=False)]
    else:
        pairs = [(_paged(k, row, size), _paged(v, row, size)) for row, size in zip(block_table, lengths, strict=True)]
    return ragged(api, q, pairs, starts, asked, inner)


def _by_flash_kernel(
    api: str, tensors: Sequence[Tensor], bounds: Sequence[Tensor], starts: Sequence[Sequence[int]], asked: Options
) -> Tensor | None:
    """All sequences in one call of a torch kernel, for full attention, or causal attention with equal lengths."""
    causal = asked.right == 0
    plain = is_fused(asked) and asked.left is None and not asked.dropout and (causal or asked.right is None)
    if not plain or (causal and starts[0] != starts[1]) or starts[0][-1] != len(tensors[0]):
        return None
    longest = [max(end - at for at, end in itertools.pairwise(each)) for each in starts]
    out = core.packed_attention(tensors, bounds, longest, asked.scale, causal)
    if out is not None:
        count(api, "torch's flash kernel")
    return out


def _is_even(starts: Sequence[int], total: int) -> bool:
    size = starts[1] - starts[0] if len(starts) > 1 else 0
    return size > 0 and starts[-1] == total and all(end - at == size for at, end in itertools.pairwise(starts))


def _paged(pages: Tensor, row: Tensor, size: int) -> Tensor:
    """The first `size` keys of a sequence whose pages are numbered in `row`."""
    count = -(-size // pages.shape[1])
    return pages[row[:count].long()].flatten(0, 1)[:size]


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Tensor | None = None,
) -> Result:
    """Attention of packed sequences. Sequence n is between `cu_seqlens[n]` and `cu_seqlens[n + 1]`."""
    asked = options(softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p)
    api = "flash_attn.flash_attn_varlen_func"
    return varlen(api, q, k, v, cu_seqlens_q, cu_seqlens_k, asked, return_attn_probs, block_table)


def flash_attn_varlen_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """Attention of packed sequences with keys and values in one tensor, (total, 2, heads, width)."""
    asked = options(softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p)
    api = "flash_attn.flash_attn_varlen_kvpacked_func"
    k, v = kv.unbind(1)
    return varlen(api, q, k, v, cu_seqlens_q, cu_seqlens_k, asked, return_attn_probs)


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Result:
    """Attention of packed sequences with queries, keys and values in one tensor, (total, 3, heads, width)."""
    asked = options(softmax_scale, causal, window_size, softcap, alibi_slopes, dropout_p)
    api = "flash_attn.flash_attn_varlen_qkvpacked_func"
    q, k, v = qkv.unbind(1)
    return varlen(api, q, k, v, cu_seqlens, cu_seqlens, asked, return_attn_probs)


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Tensor | None = None,
    v: Tensor | None = None,
    rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None,
    cache_seqlens: Tensor | int | None = None,
    cache_batch_idx: Tensor | None = None,
    cache_leftpad: Tensor | None = None,
    block_table: Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Result:
    """Attention over a cache. New keys and values are written to it first."""
    asked = options(softmax_scale, causal, window_size, softcap, alibi_slopes)
    api = "flash_attn.flash_attn_with_kvcache"
    cache = Cache(k_cache, v_cache, block_table, cache_batch_idx)
    used = _lengths(cache_seqlens, len(q), cache.capacity)
    skipped = _lengths(cache_leftpad, len(q), 0)
    if rotary_cos is not None and rotary_sin is not None:
        offsets = torch.tensor([u - s for u, s in zip(used, skipped, strict=True)], device=q.device)
        moves = causal or asked.left is not None or asked.right is not None
        q = rotate(q, rotary_cos, rotary_sin, rotary_interleaved, offsets, moving=moves)
        k = None if k is None else rotate(k, rotary_cos, rotary_sin, rotary_interleaved, offsets)
    if k is not None and v is not None:
        for number, at in enumerate(used):
            cache.write(number, at, k[number], v[number])
        used = [at + k.shape[1] for at in used]
    if len({*used}) == len({*skipped}) == 1 and block_table is None:
        rows = slice(None) if cache_batch_idx is None else cache_batch_idx.long()
        part = slice(skipped[0], used[0])
        result = dense(api, q, k_cache[rows][:, part], v_cache[rows][:, part], asked, return_softmax_lse)
        return result[:2] if return_softmax_lse else result
    pairs = [cache.read(number, skipped[number], end) for number, end in enumerate(used)]
    starts = [number * q.shape[1] for number in range(len(q) + 1)]
    result = ragged(api, q.flatten(0, 1), pairs, starts, asked, return_softmax_lse)
    if not return_softmax_lse:
        return result.unflatten(0, q.shape[:2])
    out, lse, _ = result
    return out.unflatten(0, q.shape[:2]), lse.unflatten(1, q.shape[:2]).transpose(0, 1)


def _lengths(given: Tensor | int | None, batch: int, default: int) -> list[int]:
    if given is None:
        return [default] * batch
    return [given] * batch if isinstance(given, int) else [int(length) for length in given.tolist()]


class Cache:
    """Keys and values of previous steps: one row per sequence, or pages that a table assigns to sequences."""

    def __init__(self, keys: Tensor, values: Tensor, table: Tensor | None, rows: Tensor | None) -> None:
        self._parts = keys, values
        self._table = table
        self._rows = rows
        self._page = keys.shape[1]
        self.capacity = keys.shape[1] * (1 if table is None else table.shape[1])

    def _row(self, number: int) -> int:
        return number if self._rows is None else int(self._rows[number])

    def write(self, number: int, at: int, keys: Tensor, values: Tensor) -> None:
        """Writes new keys and values after the first `at` of a sequence."""
        for part, new in zip(self._parts, (keys, values), strict=True):
            if self._table is None:
                part[self._row(number), at : at + len(new)] = new.to(part.dtype)
            else:
                places = torch.arange(at, at + len(new), device=part.device)
                part[self._table[number][places // self._page].long(), places % self._page] = new.to(part.dtype)

    def read(self, number: int, first: int, end: int) -> tuple[Tensor, Tensor]:
        """The keys and values of a sequence from `first` to `end`."""
        if self._table is None:
            keys, values = (part[self._row(number), first:end] for part in self._parts)
        else:
            keys, values = (_paged(part, self._table[number], end)[first:] for part in self._parts)
        return keys, values
