"""flash_attn's layers with projections, its MLPs, and what version 1 was called by: against math in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tests.packages.exact import attention
from torchdevice.errors import CudaOnlyError
from torchdevice.packages import flash_attn_1, flash_attn_mlp, flash_attn_modules, flash_attn_padding, flash_attn_rotary


def given(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def compare(out: Tensor, expected: Tensor, *inputs: Tensor) -> None:
    """Values and gradients."""
    torch.testing.assert_close(out, expected)
    weights = torch.randn_like(out)
    slopes = torch.autograd.grad((out * weights).sum(), inputs)
    torch.testing.assert_close(slopes, torch.autograd.grad((expected * weights).sum(), inputs))


@pytest.mark.parametrize("heads_kv", [4, 2])
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"causal": True},
        {"softmax_scale": 0.3},
        {"rotary_emb_dim": 4},
        {"checkpointing": True},
        {"window_size": (2, 0)},
    ],
)
def test_attention_with_projections(heads_kv: int, asked: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = flash_attn_modules.MHA(16, 4, heads_kv, use_flash_attn=True, dtype=torch.float64, **asked)
    x = given(2, 5, 16)
    q, k, v = layer.Wqkv(x).unflatten(-1, (-1, 4)).split((4, heads_kv, heads_kv), dim=2)
    if "rotary_emb_dim" in asked:
        angles = torch.outer(torch.arange(5.0), 10000.0 ** -(torch.arange(0, 4, 2) / 4))
        q, k = (
            flash_attn_rotary.apply_rotary_emb(part, angles.cos().double(), angles.sin().double()) for part in (q, k)
        )
    options = {"causal": asked.get("causal", False), "scale": asked.get("softmax_scale")}
    mixed, _ = attention(q, k, v, window=asked.get("window_size", (-1, -1)), **options)
    compare(layer(x), layer.out_proj(mixed.flatten(-2)), x, *layer.parameters())


def test_attention_of_another_sequence_and_packed_sequences() -> None:
    torch.manual_seed(0)
    layer = flash_attn_modules.MHA(
        8, 2, cross_attn=True, use_flash_attn=True, return_residual=True, dtype=torch.float64
    )
    x, other = given(2, 3, 8), given(2, 6, 8)
    k, v = layer.Wkv(other).unflatten(-1, (2, 2, 4)).unbind(2)
    mixed, _ = attention(layer.Wq(x).unflatten(-1, (2, 4)), k, v)
    out, residual = layer(x, other)
    assert residual is x
    compare(out, layer.out_proj(mixed.flatten(-2)), x, other)
    itself = flash_attn_modules.MHA(8, 2, causal=True, use_flash_attn=True, dtype=torch.float64)
    starts = torch.tensor([0, 2, 6], dtype=torch.int32)
    flat = given(6, 8)
    parts = [itself(flat[None, first:end])[0] for first, end in ((0, 2), (2, 6))]
    compare(itself(flat, cu_seqlens=starts, max_seqlen=4), torch.cat(parts), flat)


@pytest.mark.parametrize("causal", [False, True])
def test_padding_is_masked_out_of_attention_with_projections(causal: bool) -> None:
    torch.manual_seed(0)
    layer = flash_attn_modules.MHA(8, 2, causal=causal, dtype=torch.float64)
    x, mask = given(2, 5, 8), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    q, k, v = layer.Wqkv(x).unflatten(-1, (3, 2, 4)).unbind(2)
    bias = torch.zeros(2, 1, 5, 5, dtype=torch.float64).masked_fill(~mask[:, None, None, :], -math.inf)
    mixed, _ = attention(q, k, v, causal=causal, bias=bias)
    compare(layer(x, key_padding_mask=mask), layer.out_proj(mixed.flatten(-2)), x)
    with pytest.raises(CudaOnlyError, match="inference_params"):
        layer(x, inference_params=object())


@pytest.mark.parametrize("heads", [1, 4, 6, 12])
def test_slopes_of_alibi(heads: int) -> None:
    near = 2 ** math.floor(math.log2(heads))
    first = [2 ** (-8 / near * (n + 1)) for n in range(near)]
    between = [2 ** (-8 / (2 * near) * (n + 1)) for n in range(0, 2 * (heads - near), 2)]
    assert flash_attn_modules.get_alibi_slopes(heads) == pytest.approx(first + between)


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("gelu_approx", lambda x: F.gelu(x, approximate="tanh")),
        ("relu", lambda x: x.clamp(min=0)),
        ("sqrelu", lambda x: x.clamp(min=0) ** 2),
    ],
)
def test_layers_of_two_matrices(name: str, formula: Any) -> None:
    x, up, down, bias = given(3, 8), given(12, 8), given(4, 12), given(12)
    expected = formula(x @ up.T + bias) @ down.T
    compare(flash_attn_mlp.fused_mlp_func(x, up, down, bias, activation=name), expected, x, up, down, bias)
    layer = flash_attn_mlp.FusedMLP(8, 12, 4, activation=name, dtype=torch.float64)
    expected = layer.fc2(formula(layer.fc1(x)))
    compare(layer(x), expected, x, *layer.parameters())
    plain = flash_attn_mlp.Mlp(8, return_residual=True, dtype=torch.float64)
    out, residual = plain(x)
    assert residual is x
    compare(out, plain.fc2(F.gelu(plain.fc1(x))), x)
    compare(flash_attn_mlp.fused_dense_func(x, up, bias), x @ up.T + bias, x, up, bias)


@pytest.mark.parametrize("activation", [F.sigmoid, F.silu])
def test_gated_layers_open_the_first_half_by_the_second(activation: Any) -> None:
    layer = flash_attn_mlp.GatedMlp(6, 10, activation=activation, multiple_of=4, dtype=torch.float64)
    x = given(3, 6)
    assert layer.fc1.out_features == 24
    hidden = layer.fc1(x)
    gate = hidden[:, 12:]
    expected = layer.fc2(hidden[:, :12] * torch.sigmoid(gate) * (1 if activation is F.sigmoid else gate))
    compare(layer(x), expected, x, *layer.parameters())


def test_rows_of_several_sequences_are_unpadded() -> None:
    lengths = torch.tensor([[2, 3, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0]])
    x = given(2, 6, 3)
    flat, indices, starts, longest = flash_attn_padding.unpad_input_for_concatenated_sequences(x, lengths)
    compare(flat, torch.cat((x[0, :5], x[1])), x)
    assert (indices.tolist(), starts.tolist(), longest) == ([*range(5), *range(6, 12)], [0, 2, 5, 11], 6)
    assert starts.dtype == torch.int32


def test_einops_function_is_the_one_that_programs_import_here() -> None:
    pytest.importorskip("einops")
    x = given(2, 3, 4)
    torch.testing.assert_close(flash_attn_padding.rearrange(x, "b s ... -> (b s) ..."), x.flatten(0, 1))


@pytest.mark.parametrize("causal", [False, True])
def test_version_1_attends_to_what_is_not_padding(causal: bool) -> None:
    torch.manual_seed(0)
    layer = flash_attn_1.FlashMHA(8, 2, causal=causal, dtype=torch.float64)
    x, mask = given(2, 5, 8), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    q, k, v = layer.Wqkv(x).unflatten(-1, (3, 2, 4)).unbind(2)
    whole, part = attention(q, k, v, causal=causal)[0], attention(q[1:, :3], k[1:, :3], v[1:, :3], causal=causal)[0]
    padded = torch.stack((whole[0], torch.cat((part[0], torch.zeros(2, 2, 4, dtype=torch.float64)))))
    out, weights = layer(x, mask)
    assert weights is None
    compare(out, layer.out_proj(padded.flatten(-2)), x, *layer.parameters())
    torch.testing.assert_close(layer(x)[0], layer.out_proj(whole.flatten(-2)))


def test_version_1_packs_sequences() -> None:
    q, k, v = given(6, 2, 4), given(6, 2, 4), given(6, 2, 4)
    starts = torch.tensor([0, 2, 6], dtype=torch.int32)
    parts = [attention(*(x[None, a:b] for x in (q, k, v)), causal=True)[0][0] for a, b in ((0, 2), (2, 6))]
    sizes = starts, starts, 4, 4, 0.0
    compare(flash_attn_1.flash_attn_unpadded_func(q, k, v, *sizes, causal=True), torch.cat(parts), q, k, v)
    pairs = flash_attn_1.flash_attn_unpadded_kvpacked_func(q, torch.stack((k, v), 1), *sizes, causal=True)
    torch.testing.assert_close(pairs, torch.cat(parts))
    packed = torch.stack((q, k, v), 1)
    out = flash_attn_1.flash_attn_unpadded_qkvpacked_func(packed, starts, 4, 0.0, causal=True)
    torch.testing.assert_close(out, torch.cat(parts))
    with pytest.raises(CudaOnlyError, match="version 1 counted causal masks from the first key"):
        flash_attn_1.flash_attn_unpadded_func(q, k[:4], v[:4], starts, starts // 2, 4, 2, 0.0, causal=True)
