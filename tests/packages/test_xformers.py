"""xformers.ops against attention written out in float64, with each class of masks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.packages import exact
from tests.packages.test_flash_attn import check, tensors
from torchdevice.packages import xformers
from torchdevice.packages import xformers_masks as masks

attention = xformers.memory_efficient_attention


def tril(queries: int, keys: int, diagonal: int = 0) -> Tensor:
    return torch.full((queries, keys), -torch.inf).triu(diagonal + 1)


def far(queries: int, keys: int, window: int, diagonal: int) -> Tensor:
    """-inf where a key lies `window` or more before the query's own."""
    return torch.full((queries, keys), -torch.inf).tril(diagonal - window)


MASKS = {
    "lower triangular": (masks.LowerTriangularMask(), lambda q, k: tril(q, k)),
    "from bottom right": (masks.LowerTriangularFromBottomRightMask(), lambda q, k: tril(q, k, k - q)),
    "local": (
        masks.LowerTriangularFromBottomRightMask().make_local_attention(2),
        lambda q, k: tril(q, k, k - q) + far(q, k, 2, k - q),
    ),
    "window": (
        masks.LocalAttentionFromBottomRightMask(1, 2),
        lambda q, k: tril(q, k, k - q + 2) + far(q, k, 2, k - q),
    ),
}


@pytest.mark.parametrize("name", MASKS)
@settings(max_examples=20, deadline=None)
@given(queries=st.integers(1, 7), more=st.integers(0, 4))
def test_masks_as_objects(name: str, queries: int, more: int) -> None:
    mask, expected = MASKS[name]
    keys = queries + more
    bias = expected(queries, keys)
    torch.testing.assert_close(mask.materialize((queries, keys)), bias)
    q, k, v = tensors((2, queries, 2, 8), *[(2, keys, 2, 8)] * 2)
    check(attention(q, k, v, mask, scale=0.2), exact.attention(q, k, v, bias=bias, scale=0.2)[0], [q, k, v])


@pytest.mark.parametrize("axes", [3, 4, 5])
def test_a_tensor_as_bias_and_each_number_of_axes(axes: int) -> None:
    heads = {3: (), 4: (3,), 5: (1, 3)}[axes]
    q, k, v = tensors(*[(2, 5, *heads, 8)] * 3)
    flat = [each.reshape(2, 5, -1, 8) for each in (q, k, v)]
    bias = torch.randn(2, *heads, 5, 5, dtype=torch.float64, requires_grad=True)
    wide = bias.reshape(2, -1, 5, 5)
    check(attention(q, k, v, bias), exact.attention(*flat, bias=wide)[0].reshape(q.shape), [q, k, v, bias])
    if axes == 4:
        causal = masks.LowerTriangularMask().add_bias(bias)
        expected = exact.attention(*flat, bias=bias, causal=True)[0]
        check(attention(q, k, v, causal), expected, [q, k, v, bias])


KINDS = {
    "plain": (lambda mask: mask, lambda q, k: torch.zeros(q, k)),
    "causal": (lambda mask: mask.make_causal(), lambda q, k: tril(q, k)),
    "bottom right": (lambda mask: mask.make_causal_from_bottomright(), lambda q, k: tril(q, k, k - q)),
    "local": (lambda mask: mask.make_local_attention(2), lambda q, k: tril(q, k) + far(q, k, 2, 0)),
    "local from bottom right": (
        lambda mask: mask.make_local_attention_from_bottomright(2),
        lambda q, k: tril(q, k, k - q) + far(q, k, 2, k - q),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(lengths=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=3))
def test_sequences_one_after_another(kind: str, lengths: list[tuple[int, int]]) -> None:
    made, inside = KINDS[kind]
    queries, keys = [q for q, _ in lengths], [q + more for q, more in lengths]
    mask = made(masks.BlockDiagonalMask.from_seqlens(queries, keys))
    bias = torch.block_diag(*(torch.ones(q, k) for q, k in zip(queries, keys, strict=True))).log()
    row = column = 0
    for q, k in zip(queries, keys, strict=True):
        bias[row : row + q, column : column + k] += inside(q, k)
        row, column = row + q, column + k
    torch.testing.assert_close(mask.materialize(bias.shape), bias)
    q, k, v = tensors((1, sum(queries), 2, 8), *[(1, sum(keys), 2, 8)] * 2)
    check(attention(q, k, v, mask), exact.attention(q, k, v, bias=bias)[0], [q, k, v])
    out, lse = xformers.memory_efficient_attention_forward_requires_grad(q, k, v, mask)
    torch.testing.assert_close((out, lse), (attention(q, k, v, mask), exact.attention(q, k, v, bias=bias)[1].float()))


def test_lists_of_tensors_come_back() -> None:
    one, two = tensors((2, 3, 2, 8), (1, 4, 2, 8))
    mask, joined = masks.BlockDiagonalMask.from_tensor_list([one, two])
    assert joined.shape == (1, 10, 2, 8)
    assert mask.q_seqinfo.seqstart_py == [0, 3, 6, 10]
    for part, source in zip(mask.split(attention(joined, joined, joined, mask)), (one, two), strict=True):
        torch.testing.assert_close(part, exact.attention(source, source, source)[0])


def test_a_step_over_a_padded_cache() -> None:
    q, k, v = tensors((1, 3, 2, 8), *[(1, 12, 2, 8)] * 2)
    mask = masks.BlockDiagonalCausalWithOffsetPaddedKeysMask.from_seqlens([1, 2], kv_padding=6, kv_seqlen=[4, 5])
    out = attention(q, k, v, mask)
    torch.testing.assert_close(out[:, :1], exact.attention(q[:, :1], k[:, :4], v[:, :4], causal=True)[0])
    torch.testing.assert_close(out[:, 1:], exact.attention(q[:, 1:], k[:, 6:11], v[:, 6:11], causal=True)[0])


def test_half_precision_without_gradients_and_another_dtype() -> None:
    q, k, v = (each.detach().bfloat16() for each in tensors(*[(1, 5, 2, 8)] * 3))
    out = xformers.memory_efficient_attention_forward(q, k, v, output_dtype=torch.float32)
    assert out.dtype is torch.float32
    torch.testing.assert_close(out.double(), exact.attention(q, k, v)[0], atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("packed", [True, False])
def test_the_gated_layer(packed: bool) -> None:
    layer = xformers.SwiGLU(4, 6, 5, _pack_weights=packed).double()
    (x,) = tensors((3, 4))
    if packed:
        (w1, w2), (b1, b2) = layer.w12.weight.chunk(2), layer.w12.bias.chunk(2)
    else:
        w1, w2, b1, b2 = layer.w1.weight, layer.w2.weight, layer.w1.bias, layer.w2.bias
    expected = (F.silu(x @ w1.T + b1) * (x @ w2.T + b2)) @ layer.w3.weight.T + layer.w3.bias
    check(layer(x), expected, [x])
    torch.testing.assert_close(xformers.swiglu(x, w1, b1, w2, b2, layer.w3.weight, layer.w3.bias), expected)


def test_small_operators() -> None:
    x, more = (each.detach() for each in tensors((4, 3), (2, 3)))
    assert [part.shape for part in xformers.unbind(x, 1)] == [(4,)] * 3
    picked = xformers.index_select_cat([x, more], [torch.tensor([2, 0]), torch.tensor([1])])
    torch.testing.assert_close(picked, torch.cat((x[2], x[0], more[1])))
    expected = x.clone()
    expected[[1, 3]] += 0.5 * more
    torch.testing.assert_close(xformers.scaled_index_add(x, torch.tensor([1, 3]), more, alpha=0.5), expected)
    norm = xformers.RMSNorm(3)
    torch.testing.assert_close(norm(more.float()), xformers.rms_norm(more.float(), norm.weight))
