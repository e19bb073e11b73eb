"""flash_attn's functions against attention written out in float64: every option, forward and gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.packages import exact
from torchdevice.packages import attention, flash_attn, flash_attn_3
from torchdevice.packages.flash_attn_padding import index_first_axis, index_put_first_axis, pad_input, unpad_input

windows = st.sampled_from([(-1, -1), (0, 0), (2, -1), (-1, 1), (3, 2), (1, 0), (40, 40)])


def tensors(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]


def check(result: Tensor, expected: Tensor, inputs: list[Tensor], atol: float = 1e-7) -> None:
    """The same values, and the same gradients of a weighted sum."""
    near = {"atol": atol, "rtol": atol}
    torch.testing.assert_close(result, expected.to(result.dtype), **near)
    weights = torch.cos(torch.arange(result.numel(), dtype=result.dtype)).reshape(result.shape)
    mine = torch.autograd.grad((result * weights).sum(), inputs, allow_unused=True, retain_graph=True)
    theirs = torch.autograd.grad((expected * weights).sum(), inputs, retain_graph=True)
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(torch.zeros_like(other) if one is None else one, other, **near)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Tensor], dict[str, Any]]:
    batch, groups, repeats = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    queries, keys, width = draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.sampled_from([1, 4, 8]))
    heads = groups * repeats
    q, k, v = tensors(
        (batch, queries, heads, width), *[(batch, keys, groups, width)] * 2, seed=draw(st.integers(0, 99))
    )
    slopes = draw(st.sampled_from([None, torch.rand(heads), torch.rand(batch, heads)]))
    asked = {
        "causal": draw(st.booleans()),
        "window_size": draw(windows),
        "softmax_scale": draw(st.sampled_from([None, 0.3])),
        "softcap": draw(st.sampled_from([0.0, 1.5])),
        "alibi_slopes": slopes,
    }
    return [q, k, v], asked


def expected(inputs: list[Tensor], asked: dict[str, Any]) -> tuple[Tensor, Tensor]:
    return exact.attention(
        *inputs,
        causal=asked["causal"],
        window=asked["window_size"],
        scale=asked["softmax_scale"],
        softcap=asked["softcap"],
        slopes=asked["alibi_slopes"],
    )


@settings(max_examples=150, deadline=None)
@given(problem=problems(), blocks=st.booleans())
def test_every_option_forward_and_gradient(problem: tuple[list[Tensor], dict[str, Any]], blocks: bool) -> None:
    inputs, asked = problem
    with pytest.MonkeyPatch.context() as patch:
        if blocks:  # as if the scores were too large to hold
            patch.setattr(attention, "MOST_SCORES", 1)
            patch.setattr(attention, "MOST_MASKED", 1)
            patch.setattr(attention, "LEAST_ROWS", 2)
        check(flash_attn.flash_attn_func(*inputs, **asked), expected(inputs, asked)[0], inputs)


@settings(max_examples=50, deadline=None)
@given(problem=problems())
def test_sums_and_probabilities_are_given_where_asked(problem: tuple[list[Tensor], dict[str, Any]]) -> None:
    inputs, asked = problem
    out, lse, probabilities = flash_attn.flash_attn_func(*inputs, **asked, return_attn_probs=True)
    result, sums = expected(inputs, asked)
    check(out, result, inputs)
    torch.testing.assert_close(lse, sums.float())
    assert probabilities.numel() == 0  # without dropout there is nothing to show


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4), data=st.data())
def test_packed_sequences_are_each_their_own(lengths: list[tuple[int, int]], data: st.DataObject) -> None:
    asked = {"causal": data.draw(st.booleans()), "window_size": data.draw(windows)}
    slopes = data.draw(st.sampled_from([None, torch.rand(4), torch.rand(len(lengths), 4)]))
    sizes = [sum(pair[side] for pair in lengths) for side in (0, 1)]
    q, k, v = tensors((sizes[0], 4, 8), (sizes[1], 2, 8), (sizes[1], 2, 8))
    starts = [torch.tensor([0, *(pair[side] for pair in lengths)]).cumsum(0).int() for side in (0, 1)]
    longest = [max(pair[side] for pair in lengths) for side in (0, 1)]
    result = flash_attn.flash_attn_varlen_func(q, k, v, *starts, *longest, alibi_slopes=slopes, **asked)
    parts = []
    for number in range(len(lengths)):
        rows, columns = (slice(int(start[number]), int(start[number + 1])) for start in starts)
        some = slopes[number] if slopes is not None and slopes.dim() == 2 else slopes
        one = (q[None, rows], k[None, columns], v[None, columns])
        parts.append(exact.attention(*one, causal=asked["causal"], window=asked["window_size"], slopes=some)[0][0])
    check(result, torch.cat(parts), [q, k, v])


def test_sequences_of_one_length_are_one_call() -> None:
    q, k, v = tensors(*[(12, 2, 8)] * 3)
    starts = torch.tensor([0, 4, 8, 12], dtype=torch.int32)
    out, lse, _ = flash_attn.flash_attn_varlen_func(q, k, v, starts, starts, 4, 4, return_attn_probs=True)
    batch = [each.unflatten(0, (3, 4)) for each in (q, k, v)]
    result, sums = exact.attention(*batch)
    check(out, result.flatten(0, 1), [q, k, v])
    torch.testing.assert_close(lse, sums.float().transpose(0, 1).flatten(1))


def test_packed_forms_are_the_plain_ones() -> None:
    (qkv,) = tensors((2, 6, 3, 4, 8))
    q, k, v = qkv.unbind(2)
    asked: dict[str, Any] = {"causal": True, "window_size": (2, 0), "softmax_scale": 0.2}
    plain = flash_attn.flash_attn_func(q, k, v, **asked)
    assert torch.equal(flash_attn.flash_attn_qkvpacked_func(qkv, **asked), plain)
    assert torch.equal(flash_attn.flash_attn_kvpacked_func(q, qkv[:, :, 1:], **asked), plain)
    starts = torch.tensor([0, 6, 12], dtype=torch.int32)
    total = qkv.flatten(0, 1)
    packed = flash_attn.flash_attn_varlen_qkvpacked_func(total, starts, 6, **asked)
    assert torch.equal(packed, plain.flatten(0, 1))
    pairs = flash_attn.flash_attn_varlen_kvpacked_func(total[:, 0], total[:, 1:], starts, starts, 6, 6, **asked)
    assert torch.equal(pairs, packed)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("asked", [{}, {"causal": True}, {"window_size": (3, 3)}, {"softcap": 2.0}])
def test_half_precision_keeps_dtype_layout_and_accuracy(dtype: torch.dtype, asked: dict[str, Any]) -> None:
    q, k, v = (each.detach().to(dtype) for each in tensors((2, 7, 4, 16), *[(2, 9, 2, 16)] * 2))
    out = flash_attn.flash_attn_func(q, k, v, **asked)
    window = asked.get("window_size", (-1, -1))
    result, _ = exact.attention(
        q, k, v, causal=asked.get("causal", False), window=window, softcap=asked.get("softcap", 0.0)
    )
    assert out.dtype is dtype
    assert out.is_contiguous()
    torch.testing.assert_close(out.double(), result, atol=2e-2, rtol=2e-2)


def test_dropout_shows_what_it_took() -> None:
    q, k, v = tensors(*[(1, 6, 2, 8)] * 3)
    torch.manual_seed(0)
    out, _, shown = flash_attn.flash_attn_func(q, k, v, 0.4, return_attn_probs=True)
    kept = shown.clamp(min=0) / 0.6
    torch.testing.assert_close(out, (kept @ v.transpose(1, 2)).transpose(1, 2))
    plain = torch.softmax(q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / 8**0.5, dim=-1)
    torch.testing.assert_close(shown.abs(), plain)
    assert (shown < 0).any()
    torch.manual_seed(0)
    many = flash_attn.flash_attn_func(q, k, torch.ones_like(v), 0.4).mean()
    assert 0.5 < many.item() < 1.5  # the mean over kept and taken stays one


@pytest.mark.parametrize("lengths", [[3, 3], [2, 5]])
@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_a_cache_is_written_turned_and_read(lengths: list[int], paged: bool, interleaved: bool, causal: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    q, new_k, new_v = (torch.randn(2, 2, heads, 8, generator=generator).double() for heads in (4, 2, 2))
    keys, values = (torch.randn(2, 8, 2, 8, generator=generator).double() for _ in range(2))
    angles = torch.outer(torch.arange(16.0), torch.tensor([1.0, 0.1])).double()
    cos, sin = angles.cos(), angles.sin()
    table = torch.tensor([[2, 0], [1, 3]], dtype=torch.int32)
    caches = [each.clone() for each in (keys, values)]
    if paged:
        for cache, rows in zip(caches, (keys, values), strict=True):
            cache.resize_(4, 4, 2, 8)
            for number in range(2):
                cache[table[number].long()] = rows[number].unflatten(0, (2, 4))
    out, lse = flash_attn.flash_attn_with_kvcache(
        q,
        *caches,
        new_k,
        new_v,
        cos,
        sin,
        cache_seqlens=torch.tensor(lengths, dtype=torch.int32),
        block_table=table if paged else None,
        causal=causal,
        rotary_interleaved=interleaved,
        return_softmax_lse=True,
    )
    for number, length in enumerate(lengths):
        k, v = keys[number].clone(), values[number].clone()
        turned = torch.stack([turn(new_k[number, n], cos[length + n], sin[length + n], interleaved) for n in range(2)])
        k[length : length + 2], v[length : length + 2] = turned, new_v[number]
        places = [length + n if causal else length for n in range(2)]
        asks = torch.stack([turn(q[number, n], cos[at], sin[at], interleaved) for n, at in enumerate(places)])
        end = length + 2
        result, sums = exact.attention(asks[None], k[None, :end], v[None, :end], causal=causal)
        torch.testing.assert_close(out[number], result[0])
        torch.testing.assert_close(lse[number], sums[0].float())
        stored = caches[0][table[number].long()].flatten(0, 1) if paged else caches[0][number]
        torch.testing.assert_close(stored[:end], k[:end])


def turn(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """One token's heads, by complex numbers: pairs of entries are numbers that the angle turns."""
    width = 2 * len(cos)
    part = x[:, :width]
    pairs = part.unflatten(-1, (-1, 2)) if interleaved else part.unflatten(-1, (2, -1)).transpose(-1, -2)
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.complex(cos, sin))
    flat = turned.flatten(-2) if interleaved else turned.transpose(-1, -2).flatten(-2)
    return torch.cat((flat, x[:, width:]), dim=-1)


def test_a_cache_with_padding_in_front_and_rows_of_its_own() -> None:
    q, keys, values = (each.detach() for each in tensors((2, 1, 2, 8), (3, 6, 2, 8), (3, 6, 2, 8)))
    out = flash_attn.flash_attn_with_kvcache(
        q,
        keys,
        values,
        cache_seqlens=torch.tensor([4, 6]),
        cache_batch_idx=torch.tensor([2, 0]),
        cache_leftpad=torch.tensor([1, 3]),
    )
    for number, (row, first, end) in enumerate([(2, 1, 4), (0, 3, 6)]):
        one = q[number, None], keys[row, None, first:end], values[row, None, first:end]
        torch.testing.assert_close(out[number], exact.attention(*one)[0][0])


def test_pages_in_packed_sequences() -> None:
    q, keys, values = (each.detach() for each in tensors((5, 2, 8), (4, 4, 2, 8), (4, 4, 2, 8)))
    table = torch.tensor([[3, 1], [0, 2]], dtype=torch.int32)
    starts, key_starts = torch.tensor([0, 2, 5]), torch.tensor([0, 6, 9])
    out = flash_attn.flash_attn_varlen_func(q, keys, values, starts, key_starts, 3, 6, causal=True, block_table=table)
    for number, (first, end, size) in enumerate([(0, 2, 6), (2, 5, 3)]):
        k, v = (each[table[number].long()].flatten(0, 1)[None, :size] for each in (keys, values))
        torch.testing.assert_close(out[first:end], exact.attention(q[None, first:end], k, v, causal=True)[0][0])


def test_version_3_computes_the_same_and_refuses_float8() -> None:
    q, k, v = tensors(*[(2, 5, 2, 8)] * 3)
    out, lse = flash_attn_3.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    result, sums = exact.attention(q, k, v, causal=True)
    check(out, result, [q, k, v])
    torch.testing.assert_close(lse, sums.float())
    total = [each.detach().flatten(0, 1) for each in (q, k, v)]
    starts, used = torch.tensor([0, 5, 10]), torch.tensor([3, 5])
    packed = flash_attn_3.flash_attn_varlen_func(*total, starts, starts, 5, 5, seqused_k=used)
    torch.testing.assert_close(packed[:5], exact.attention(q[:1], k[:1, :3], v[:1, :3])[0][0].detach())
    cached = flash_attn_3.flash_attn_with_kvcache(q, k, v, causal=True)
    torch.testing.assert_close(cached, result)
    with pytest.raises(NotImplementedError, match=r"flash_attn_func was called with q_descale;[^\0]*Hint:"):
        flash_attn_3.flash_attn_func(q, k, v, q_descale=torch.ones(1))


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_padding_goes_and_comes_back(lengths: list[int]) -> None:
    mask = torch.arange(5)[None, :] < torch.tensor(lengths)[:, None]
    (hidden,) = tensors((len(lengths), 5, 3))
    packed, indices, starts, longest, used = unpad_input(hidden, mask.int())
    assert starts.dtype is torch.int32
    assert starts.tolist() == [0, *torch.tensor(lengths).cumsum(0).tolist()]
    assert (longest, used.tolist()) == (max(lengths), lengths)
    check(packed, hidden[mask], [hidden])
    check(pad_input(packed, indices, len(lengths), 5), hidden * mask[..., None], [hidden])
    assert torch.equal(index_first_axis(hidden.flatten(0, 1), indices), packed)
    assert torch.equal(
        index_put_first_axis(packed, indices, len(lengths) * 5), (hidden * mask[..., None]).flatten(0, 1)
    )
