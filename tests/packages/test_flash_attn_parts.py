"""What models take from flash_attn besides attention: rotary embeddings, normalisations, losses, layers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tests.packages import exact
from tests.packages.test_flash_attn import check, tensors, turn
from torchdevice.errors import CudaOnlyError
from torchdevice.packages import flash_attn_losses, flash_attn_modules, flash_attn_norms, flash_attn_rotary


def tables(length: int = 16) -> tuple[Tensor, Tensor]:
    angles = torch.outer(torch.arange(float(length)), torch.tensor([1.0, 0.1, 0.01])).double()
    return angles.cos(), angles.sin()


def turned(x: Tensor, places: list[list[int]], interleaved: bool) -> Tensor:
    cos, sin = tables()
    return torch.stack(
        [
            torch.stack([turn(x[b, n], cos[at], sin[at], interleaved) for n, at in enumerate(row)])
            for b, row in enumerate(places)
        ]
    )


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("offsets", [0, 3, [1, 4]])
def test_rotary_turns_by_position(interleaved: bool, offsets: int | list[int]) -> None:
    (x,) = tensors((2, 5, 2, 8))
    given = torch.tensor(offsets) if isinstance(offsets, list) else offsets
    out = flash_attn_rotary.apply_rotary_emb(x, *tables(), interleaved=interleaved, seqlen_offsets=given)
    first = offsets if isinstance(offsets, list) else [offsets] * 2
    check(out, turned(x, [[start + n for n in range(5)] for start in first], interleaved), [x])


def test_rotary_of_packed_sequences_and_in_place() -> None:
    (x,) = (each.detach() for each in tensors((7, 2, 8)))
    starts = torch.tensor([0, 3, 7], dtype=torch.int32)
    out = flash_attn_rotary.apply_rotary_emb(x, *tables(), cu_seqlens=starts, max_seqlen=4)
    expected = turned(x[None], [[0, 1, 2, 0, 1, 2, 3]], False)[0]
    torch.testing.assert_close(out, expected)
    same = flash_attn_rotary.apply_rotary_emb(x, *tables(), inplace=True, cu_seqlens=starts, max_seqlen=4)
    assert same is x
    torch.testing.assert_close(x, expected)


def test_rotary_of_packed_queries_and_keys() -> None:
    (qkv,) = tensors((2, 5, 3, 2, 8))
    q, k, v = qkv.clone().unbind(2)
    places = [[*range(5)]] * 2
    expected = torch.stack((turned(q, places, False), turned(k, places, False), v), dim=2)
    flat, pair = qkv.detach().flatten(2, 3).clone(), qkv.detach()[:, :, 1:].clone()
    (slope,) = torch.autograd.grad(expected.square().sum() + expected.sum(), qkv)
    out = flash_attn_rotary.apply_rotary_emb_qkv_(qkv, *tables())
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(torch.autograd.grad(out.square().sum() + out.sum(), qkv)[0], slope)
    flash_attn_rotary.apply_rotary_emb_qkv_(flat, *tables(), num_heads_q=2)
    flash_attn_rotary.apply_rotary_emb_kv_(pair, *tables())
    for changed, values in ((qkv, out), (flat, out.flatten(2, 3)), (pair, out[:, :, 1:])):
        torch.testing.assert_close(changed.detach(), values.detach())


def test_the_rotary_layer_makes_its_own_tables() -> None:
    layer = flash_attn_rotary.RotaryEmbedding(6, base=100.0)
    qkv = tensors((1, 4, 3, 2, 8))[0].detach()
    angles = torch.outer(torch.arange(6.0), 100.0 ** -(torch.arange(0, 6, 2) / 6)).double()
    expected = flash_attn_rotary.apply_rotary_emb_qkv_(qkv.clone(), angles.cos(), angles.sin(), seqlen_offsets=2)
    torch.testing.assert_close(layer(qkv.clone(), seqlen_offset=2), expected, atol=1e-6, rtol=1e-6)
    q, kv = qkv[:, :, 0].clone(), qkv[:, :, 1:].clone()
    layer(q, kv, seqlen_offset=2)
    torch.testing.assert_close(torch.cat((q.unsqueeze(2), kv), dim=2), expected, atol=1e-6, rtol=1e-6)


def test_the_rotary_layer_of_a_model_in_half_precision_turns_by_exact_angles() -> None:
    layer = flash_attn_rotary.RotaryEmbedding(8).half()
    layer._update_cos_sin_cache(3000, "cpu", torch.float32)
    angles = torch.outer(torch.arange(3000.0).double(), 10000.0 ** -(torch.arange(0, 8, 2).double() / 8))
    torch.testing.assert_close(layer._cos_cached, angles.cos().float(), atol=2e-4, rtol=0)


def test_the_rotary_layer_scales_queries_and_keys_as_xpos_does() -> None:
    layer = flash_attn_rotary.RotaryEmbedding(4, scale_base=8.0).double()
    qkv = tensors((1, 5, 3, 1, 4))[0].detach()
    places = torch.arange(5.0).double()
    angles = torch.outer(places, 10000.0 ** -(torch.arange(0, 4, 2).double() / 4))
    scale = ((torch.arange(0, 4, 2).double() + 1.6) / 5.6) ** ((places - 2) / 8)[:, None]
    parts = qkv.clone().unbind(2)
    q, k = (
        flash_attn_rotary.apply_rotary_emb(part, angles.cos() * by, angles.sin() * by)
        for part, by in zip(parts[:2], (scale, 1 / scale), strict=True)
    )
    torch.testing.assert_close(layer(qkv), torch.stack((q, k, parts[2]), dim=2), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_kernel_of_rotary_turns_and_turns_back(interleaved: bool) -> None:
    x = tensors((2, 5, 2, 8))[0].detach()
    out = flash_attn_rotary.apply_rotary(x, *tables(), 3, interleaved=interleaved)
    torch.testing.assert_close(out, turned(x, [[*range(3, 8)]] * 2, interleaved))
    back = flash_attn_rotary.apply_rotary(out, *tables(), 3, interleaved=interleaved, conjugate=True)
    torch.testing.assert_close(back, x)


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * weight + bias


def test_normalisations_add_a_residual() -> None:
    x, residual, weight, bias = tensors((3, 8), (3, 8), (8,), (8,))
    total = x + residual
    inputs = [x, residual, weight, bias]
    normed, kept = flash_attn_norms.dropout_add_layer_norm(x, residual, weight, bias, 0.0, 1e-5, prenorm=True)
    torch.testing.assert_close(kept, total)
    check(normed, layer_norm(total, weight, bias, 1e-5), inputs)
    check(
        flash_attn_norms.layer_norm_fn(x, weight, bias, residual, eps=1e-5),
        layer_norm(total, weight, bias, 1e-5),
        inputs,
    )
    without = [x, residual, weight]
    check(
        flash_attn_norms.dropout_add_rms_norm(x, residual, weight, None, 0.0, 1e-5), rms(total, weight, 1e-5), without
    )
    check(flash_attn_norms.rms_norm_fn(x, weight, None, residual, eps=1e-5), rms(total, weight, 1e-5), without)
    check(flash_attn_norms.rms_norm(x, weight, 1e-5), rms(x, weight, 1e-5), [x, weight])


def test_a_residual_keeps_its_dtype_and_is_normalised_before_it_is_rounded() -> None:
    x, residual = torch.randn(3, 8).bfloat16(), torch.randn(3, 8).bfloat16()
    weight = torch.rand(8).bfloat16()
    normed, kept = flash_attn_norms.rms_norm_fn(x, weight, None, residual, prenorm=True, residual_in_fp32=True)
    assert kept.dtype == torch.bfloat16
    torch.testing.assert_close(kept, x + residual)
    exact_sum = x.double() + residual.double()
    torch.testing.assert_close(normed, rms(exact_sum, weight.double(), 1e-6).bfloat16())
    _, first = flash_attn_norms.rms_norm_fn(x, weight, None, prenorm=True, residual_in_fp32=True)
    assert first.dtype == torch.float32


def test_normalisations_with_weights_that_count_from_one_and_results_of_another_dtype() -> None:
    x, weight, bias = tensors((3, 8), (8,), (8,))
    out = flash_attn_norms.layer_norm_fn(x, weight, bias, zero_centered_weight=True, out_dtype=torch.float32)
    torch.testing.assert_close(out, layer_norm(x, weight + 1, bias, 1e-6).float())
    layer = flash_attn_norms.RMSNorm(8, zero_centered_weight=True, dtype=torch.float64)
    assert not layer.weight.any()
    torch.testing.assert_close(layer(x), rms(x, torch.ones(8), 1e-5))
    check(flash_attn_norms.layer_norm(x, weight, bias, 1e-5), layer_norm(x, weight, bias, 1e-5), [x, weight, bias])
    with pytest.raises(CudaOnlyError, match="x1"):
        flash_attn_norms.layer_norm_fn(x, weight, bias, x1=x)


def test_normalisations_as_layers_and_dropout() -> None:
    (x,) = tensors((4, 8))
    layer = flash_attn_norms.RMSNorm(8, eps=1e-5, dtype=torch.float64)
    torch.testing.assert_close(layer(x), rms(x, layer.weight, 1e-5))
    normed, total = layer(x, residual=x, prenorm=True)
    torch.testing.assert_close(total, 2 * x)
    torch.testing.assert_close(normed, rms(2 * x, layer.weight, 1e-5))
    dropping = flash_attn_norms.DropoutAddRMSNorm(8, p=0.5, dtype=torch.float64)
    assert dropping(x).eq(0).any()
    torch.testing.assert_close(dropping.eval()(x, x), rms(2 * x, dropping.weight, 1e-5))
    both = flash_attn_norms.DropoutAddLayerNorm(8, prenorm=True, dtype=torch.float64)
    torch.testing.assert_close(both(x, x)[0], layer_norm(2 * x, both.weight, both.bias, 1e-5))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_loss_scales_smooths_and_penalises(reduction: str) -> None:
    (logits,) = tensors((5, 7))
    labels = torch.tensor([1, 2, -100, 0, 6])
    loss = flash_attn_losses.CrossEntropyLoss(
        reduction=reduction, label_smoothing=0.1, logit_scale=0.5, lse_square_scale=0.01, return_z_loss=True
    )
    kept = labels != -100
    scaled = logits * 0.5
    plain = F.cross_entropy(scaled, labels, label_smoothing=0.1, reduction="none")
    penalty = 0.01 * scaled.logsumexp(-1).square() * kept
    reduce = {"mean": lambda each: each.sum() / kept.sum(), "sum": torch.sum, "none": lambda each: each}[reduction]
    total, part = loss(logits, labels)
    check(total, reduce(plain + penalty), [logits])
    torch.testing.assert_close(part, reduce(penalty))
    losses, penalties = flash_attn_losses.cross_entropy_loss(
        logits, labels, label_smoothing=0.1, logit_scale=0.5, lse_square_scale=0.01
    )
    torch.testing.assert_close((losses, penalties), (plain + penalty, penalty))
    with pytest.raises(NotImplementedError, match="Hint:"):
        flash_attn_losses.CrossEntropyLoss(process_group=object())


def test_layers_of_attention() -> None:
    (qkv,) = tensors((2, 4, 3, 2, 8))
    q, k, v = qkv.unbind(2)
    expected = exact.attention(q, k, v, causal=True)[0]
    torch.testing.assert_close(flash_attn_modules.FlashSelfAttention(causal=True)(qkv), expected)
    torch.testing.assert_close(flash_attn_modules.FlashCrossAttention()(q, qkv[:, :, 1:], causal=True), expected)
    starts = torch.tensor([0, 4, 8])
    packed = flash_attn_modules.FlashSelfAttention(causal=True)(qkv.flatten(0, 1), cu_seqlens=starts, max_seqlen=4)
    torch.testing.assert_close(packed, expected.flatten(0, 1))
