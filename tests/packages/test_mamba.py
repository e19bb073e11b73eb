"""causal_conv1d and mamba_ssm against loops over time in float64, forward and gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.packages.test_flash_attn import check, tensors
from torchdevice.errors import CudaOnlyError
from torchdevice.ledger import stand_ins
from torchdevice.packages import (
    causal_conv1d,
    causal_conv1d_functions,
    flash_attn_norms,
    gated_norms,
    mamba_modules,
    mamba_simple,
    mamba_ssm,
    selective_scan_cuda,
)


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None, past: Tensor | None = None) -> Tensor:
    width = weight.shape[1]
    past = x.new_zeros(*x.shape[:2], width - 1) if past is None else past
    whole = torch.cat((past, x), dim=-1)
    steps = [(whole[..., at : at + width] * weight).sum(-1) for at in range(x.shape[2])]
    out = torch.stack(steps, dim=-1)
    return out if bias is None else out + bias[:, None]


@settings(max_examples=25, deadline=None)
@given(length=st.integers(1, 9), width=st.integers(2, 4), activation=st.sampled_from([None, "silu"]), data=st.data())
def test_convolutions_see_no_later_step(length: int, width: int, activation: str | None, data: st.DataObject) -> None:
    x, weight, bias, past = tensors((2, 3, length), (3, width), (3,), (2, 3, width - 1))
    act = F.silu if activation else lambda y: y
    inputs = [x, weight, bias]
    check(
        causal_conv1d.causal_conv1d_fn(x, weight, bias, activation=activation), act(convolved(x, weight, bias)), inputs
    )
    out, last = causal_conv1d.causal_conv1d_fn(x, weight, initial_states=past, return_final_states=True)
    check(out, convolved(x, weight, None, past), [x, weight, past])
    torch.testing.assert_close(last, torch.cat((past, x), dim=-1)[..., -(width - 1) :])
    index = torch.tensor(sorted(data.draw(st.lists(st.integers(0, 2), min_size=length, max_size=length))))
    parts = [convolved(x[..., index == number], weight, bias) for number in range(3) if (index == number).any()]
    given_index = index.int().expand(2, -1)
    result = causal_conv1d.causal_conv1d_fn(x, weight, bias, seq_idx=given_index, activation=activation)
    check(result, act(torch.cat(parts, dim=-1)), inputs)


@pytest.mark.parametrize("ring", [False, True])
def test_single_steps_are_the_whole(ring: bool) -> None:
    x, weight, bias = (each.detach() for each in tensors((2, 3, 7), (3, 4), (3,)))
    expected = F.silu(convolved(x, weight, bias))
    state = torch.zeros(2, 3, 5, dtype=torch.float64)
    done = []
    for at in range(7):
        place = torch.full((2,), at) if ring else None
        step = x[..., at] if at % 2 else x[..., at : at + 1]
        out = causal_conv1d.causal_conv1d_update(step, state, weight, bias, "silu", cache_seqlens=place)
        done.append(out.reshape(2, 3))
    torch.testing.assert_close(torch.stack(done, dim=-1), expected)


def scanned(
    u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None, z: Tensor | None
) -> tuple[Tensor, Tensor]:
    """b and c are (batch, channels, size, length)."""
    state = u.new_zeros(*u.shape[:2], a.shape[1])
    done = []
    for at in range(u.shape[2]):
        step = delta[..., at, None]
        state = state * torch.exp(step * a) + step * u[..., at, None] * b[..., at]
        done.append((state * c[..., at]).sum(-1))
    y = torch.stack(done, dim=-1)
    y = y if d is None else y + u * d[:, None]
    return (y if z is None else y * F.silu(z)), state


@settings(max_examples=30, deadline=None)
@given(length=st.integers(1, 12), steps=st.sampled_from([1, 4, 64]), groups=st.sampled_from([0, 1, 2]), data=st.data())
def test_the_selective_scan(length: int, steps: int, groups: int, data: st.DataObject) -> None:
    shape = (2, groups, 3, length) if groups else (2, 3, length)
    u, raw, logs, b, c, d, z, bias = tensors(
        (2, 4, length), (2, 4, length), (4, 3), shape, shape, (4,), (2, 4, length), (4,)
    )
    a = -torch.exp(logs)
    softplus, gated = data.draw(st.booleans()), data.draw(st.booleans())
    delta = raw + bias[:, None]
    delta = F.softplus(delta) if softplus else delta
    full = [each.unsqueeze(1) if not groups else each.repeat_interleave(4 // groups, dim=1) for each in (b, c)]
    full = [each.expand(2, 4, 3, length) for each in full]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mamba_ssm, "STEPS", steps)
        y, last = mamba_ssm.selective_scan_fn(
            u, raw, a, b, c, d, z if gated else None, bias, softplus, return_last_state=True
        )
        result, state = scanned(u, delta, a, *full, d, z if gated else None)
        torch.testing.assert_close(last, state)
        check(y, result, [u, raw, logs, b, c, d, bias, *([z] if gated else [])])


def test_long_scans_with_strong_decay_stay_finite() -> None:
    u = torch.ones(1, 1, 500)
    y = mamba_ssm.selective_scan_fn(u, 50 * u, torch.full((1, 2), -20.0), *[torch.ones(1, 2, 500)] * 2)
    torch.testing.assert_close(y, torch.full_like(y, 100.0))
    with pytest.raises(NotImplementedError, match="Hint:"):
        mamba_ssm.selective_scan_fn(u, u, torch.ones(1, 2, dtype=torch.complex64), *[torch.ones(1, 2, 500)] * 2)


def test_single_steps_of_the_state_are_the_scan() -> None:
    u, delta, b, c, d, z = (
        each.detach() for each in tensors((2, 4, 5), (2, 4, 5), (2, 3, 5), (2, 3, 5), (4,), (2, 4, 5))
    )
    a = -torch.rand(4, 3, dtype=torch.float64)
    full = [each.unsqueeze(1).expand(2, 4, 3, 5) for each in (b, c)]
    expected, last = scanned(u, F.softplus(delta + 0.5), a, *full, d, z)
    state = torch.zeros(2, 4, 3, dtype=torch.float64)
    bias = torch.full((4,), 0.5, dtype=torch.float64)
    for at in range(5):
        step = u[..., at], delta[..., at], a, b[..., at], c[..., at], d, z[..., at], bias
        y = mamba_ssm.selective_state_update(state, *step, dt_softplus=True)
        torch.testing.assert_close(y, expected[..., at])
    torch.testing.assert_close(state, last)


def chunked(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, index: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Mamba 2, step by step; a new sequence begins with an empty state."""
    heads = x.shape[2]
    b, c = (each.repeat_interleave(heads // each.shape[2], dim=2) for each in (b, c))
    done = []
    for at in range(x.shape[1]):
        if at and index[at] != index[at - 1]:
            state = torch.zeros_like(state)
        decay = torch.exp(dt[:, at] * a)[..., None, None]
        added = dt[:, at, :, None, None] * x[:, at, :, :, None] * b[:, at, :, None, :]
        state = state * decay + added
        done.append((state * c[:, at, :, None, :]).sum(-1))
    return torch.stack(done, dim=1), state


@settings(max_examples=20, deadline=None)
@given(length=st.integers(1, 10), chunk=st.sampled_from([1, 3, 16]), groups=st.sampled_from([1, 2]), data=st.data())
def test_the_chunked_scan(length: int, chunk: int, groups: int, data: st.DataObject) -> None:
    x, dt, b, c, d, z, first = tensors(
        (2, length, 4, 3), (2, length, 4), *[(2, length, groups, 5)] * 2, (4,), (2, length, 4, 3), (2, 4, 3, 5)
    )
    a = -torch.rand(4, dtype=torch.float64)
    index = torch.tensor(sorted(data.draw(st.lists(st.integers(0, 2), min_size=length, max_size=length)))).int()
    delta = F.softplus(dt + 0.1).clamp(0.2, 3.0)
    y, last = chunked(x, delta, a, b, c, index, first)
    result, state = mamba_ssm.mamba_chunk_scan_combined(
        x,
        dt,
        a,
        b,
        c,
        chunk,
        D=d,
        z=z,
        dt_bias=torch.full((4,), 0.1, dtype=torch.float64),
        initial_states=first,
        seq_idx=index.expand(2, -1),
        dt_softplus=True,
        dt_limit=(0.2, 3.0),
        return_final_states=True,
    )
    check(result, (y + x * d[:, None]) * F.silu(z), [x, dt, b, c, d, z, first])
    torch.testing.assert_close(state, last)


def test_the_block_between_projections_is_the_layer() -> None:
    torch.manual_seed(0)
    layer = mamba_modules.Mamba(6, d_state=3).double()
    (hidden,) = tensors((2, 5, 6))
    names: list[Any] = [layer.conv1d.weight, layer.conv1d.bias, layer.x_proj.weight, layer.dt_proj.weight]
    xz = layer.in_proj(hidden).transpose(1, 2)
    block = mamba_ssm.mamba_inner_fn(
        xz,
        *names,
        layer.out_proj.weight,
        layer.out_proj.bias,
        -torch.exp(layer.A_log),
        None,
        None,
        layer.D,
        delta_bias=layer.dt_proj.bias,
    )
    x, z = xz.chunk(2, dim=1)
    x = F.silu(convolved(x, layer.conv1d.weight.flatten(1), layer.conv1d.bias))
    delta, b, c = layer.x_proj(x.transpose(1, 2)).split((1, 3, 3), dim=-1)
    delta = F.softplus(layer.dt_proj(delta)).transpose(1, 2)
    full = [each.transpose(1, 2).unsqueeze(1).expand(2, 12, 3, 5) for each in (b, c)]
    y, _ = scanned(x, delta, -torch.exp(layer.A_log), *full, layer.D, z)
    expected = layer.out_proj(y.transpose(1, 2))
    torch.testing.assert_close(block, expected)
    check(layer(hidden), expected, [hidden], atol=1e-6)
    steps = F.softplus(layer.dt_proj.bias)
    assert steps.min() > 0.0009
    assert steps.max() < 0.11
    assert {name.partition(".")[0] for name in layer.state_dict()} == {
        *("A_log", "D", "conv1d", "dt_proj", "in_proj", "out_proj", "x_proj")
    }


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("group", [None, 4])
def test_gated_normalisation(before: bool, group: int | None) -> None:
    x, z, weight, bias = tensors((3, 8), (3, 8), (8,), (8,))
    gated = x if before else x * F.silu(z)
    parts = gated.unflatten(-1, (-1, group or 8))
    normed = (parts * torch.rsqrt(parts.square().mean(-1, keepdim=True) + 1e-6)).flatten(-2) * weight + bias
    expected = normed * F.silu(z) if before else normed
    result = gated_norms.rmsnorm_fn(x, weight, bias, z, group_size=group, norm_before_gate=before)
    check(result, expected, [x, z, weight, bias])
    centred = F.layer_norm(parts, parts.shape[-1:], eps=1e-6).flatten(-2) * weight
    plain = gated_norms.layernorm_fn(x, weight, None, z, group_size=group, norm_before_gate=before)
    check(plain, centred * F.silu(z) if before else centred, [x, z, weight])
    layer = gated_norms.RMSNorm(8, group_size=group, norm_before_gate=before).double()
    like = gated_norms.rmsnorm_fn(x, layer.weight, None, z, 1e-5, group, before)
    torch.testing.assert_close(layer(x, z), like)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("limit", [(0.0, float("inf")), (0.01, 0.05)])
def test_the_whole_block_of_mamba_2(gated: bool, limit: tuple[float, float]) -> None:
    torch.manual_seed(0)
    layer = mamba_modules.Mamba2(
        8, d_state=4, headdim=4, ngroups=2, rmsnorm=gated, dt_limit=limit, chunk_size=3
    ).double()
    (hidden,) = tensors((2, 5, 8))
    z, mixed, dt = layer.in_proj(hidden).split((16, 32, 4), dim=-1)
    mixed = F.silu(convolved(mixed.transpose(1, 2), layer.conv1d.weight.flatten(1), layer.conv1d.bias)).transpose(1, 2)
    x, b, c = mixed.split((16, 8, 8), dim=-1)
    x, b, c = x.unflatten(-1, (4, 4)), b.unflatten(-1, (2, 4)), c.unflatten(-1, (2, 4))
    delta, index = F.softplus(dt + layer.dt_bias).clamp(*limit), torch.zeros(5)
    y, last = chunked(x, delta, -torch.exp(layer.A_log), b, c, index, x.new_zeros(2, 4, 4, 4))
    y = (y + x * layer.D[:, None]).flatten(-2) * F.silu(z)
    if gated:
        parts = y.unflatten(-1, (2, 8))
        y = (parts * torch.rsqrt(parts.square().mean(-1, keepdim=True) + 1e-5)).flatten(-2) * layer.norm.weight
    expected = layer.out_proj(y)
    check(layer(hidden), expected, [hidden], atol=1e-6)
    torch.testing.assert_close(layer(hidden.flatten(0, 1), seqlen=5), layer(hidden).flatten(0, 1))
    weights = layer.conv1d.weight.flatten(1), layer.conv1d.bias, layer.dt_bias, -torch.exp(layer.A_log), layer.D, 3
    _, state = mamba_ssm.mamba_split_conv1d_scan_combined(
        layer.in_proj(hidden), *weights, dt_limit=limit, headdim=4, ngroups=2, return_final_states=True
    )
    torch.testing.assert_close(state, last)
    with pytest.raises(CudaOnlyError, match="inference_params"):
        layer(hidden, inference_params=object())


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind", [torch.nn.LayerNorm, flash_attn_norms.RMSNorm])
def test_blocks_add_normalise_and_mix(fused: bool, kind: Any) -> None:
    def mixer(size: int) -> Any:
        layer = torch.nn.Linear(size, size)
        return type("Mixer", (torch.nn.Module,), {"forward": lambda self, x, inference_params: layer(x)})()

    torch.manual_seed(0)
    block = mamba_modules.Block(6, mixer, lambda size: torch.nn.Linear(size, size), kind, fused)
    x, residual = torch.randn(2, 3, 6), torch.randn(2, 3, 6)
    out, kept = block(x, residual)
    mixed = block.mixer(block.norm(x + residual), None)
    torch.testing.assert_close(kept, mixed + x + residual)
    torch.testing.assert_close(out, block.mlp(block.norm2(kept)))
    simple = mamba_simple.Block(6, mixer, kind, fused, residual_in_fp32=True)
    out, kept = simple(x.bfloat16().float())
    torch.testing.assert_close(out, simple.mixer(simple.norm(kept), None))


@pytest.mark.parametrize("gated", [False, True])
def test_the_compiled_module_gives_the_scan_and_its_gradients(gated: bool) -> None:
    given_ = tensors((2, 4, 6), (2, 4, 6), (4, 3), (2, 1, 3, 6), (2, 1, 3, 6), (4,), (4,), (2, 4, 6))
    u, delta, logs, b, c, d, bias, z = (each.detach() for each in given_)
    a = -torch.exp(logs)
    gate = z if gated else None
    out, states, *rest = selective_scan_cuda.fwd(u, delta, a, b, c, d, gate, bias, True)
    inputs = [each.requires_grad_() for each in (u, delta, a, b, c, d, bias, z)[: 8 if gated else 7]]
    y, last = scanned(u, F.softplus(delta + bias[:, None]), a, b.expand(2, 4, 3, 6), c.expand(2, 4, 3, 6), d, None)
    torch.testing.assert_close(out, y.detach())
    torch.testing.assert_close(states[:, :, -1, 1::2], last.detach())
    y = y * F.silu(z) if gated else y
    torch.testing.assert_close(rest, [y.detach()] if gated else [])
    slope = torch.randn_like(y)
    expected = torch.autograd.grad(y, inputs, slope)
    room = torch.empty_like(z)
    found = selective_scan_cuda.bwd(u, delta, a, b, c, d, gate, bias, slope, states, out, room, True, gated)
    torch.testing.assert_close(found[: len(expected)], list(expected))
    if gated:
        assert found[7] is room
        torch.testing.assert_close(found[8], y.detach())


@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("states", [False, True])
def test_convolutions_and_their_gradients_as_functions(silu: bool, states: bool) -> None:
    x, weight, bias, first = tensors((2, 3, 6), (3, 4), (3,), (2, 3, 3))
    past = first if states else None
    whole = convolved(x, weight, bias, past)
    expected = F.silu(whole) if silu else whole
    room = torch.empty(2, 3, 3, dtype=torch.float64) if states else None
    out = causal_conv1d_functions.causal_conv1d_fwd_function(x, weight, bias, None, past, room, silu)
    torch.testing.assert_close(out, expected.detach())
    slope, slope_of_last = torch.randn_like(out), torch.randn(2, 3, 3, dtype=torch.float64) if states else None
    total = (expected * slope).sum()
    if states:
        torch.testing.assert_close(room, x.detach()[..., -3:])
        total = total + (x[..., -3:] * slope_of_last).sum()
    inputs = [x, weight, bias, *([first] if states else [])]
    given_ = x, weight, bias, slope, None, past, slope_of_last, torch.empty_like(x), states, silu
    found = causal_conv1d_functions.causal_conv1d_bwd_function(*given_)
    assert found[0] is given_[7]
    torch.testing.assert_close(found[: len(inputs)], torch.autograd.grad(total, inputs))
    one, two = torch.randn(2, 3, 3), torch.zeros(2, 3, 3)
    step, kernel = torch.randn(2, 3), torch.randn(3, 4)
    two.copy_(one)
    done = causal_conv1d_functions.causal_conv1d_update_function(step, one, kernel, None, silu, None, None)
    like = causal_conv1d.causal_conv1d_update(step, two, kernel, None, "silu" if silu else None)
    torch.testing.assert_close((done, one), (like, two))


def test_a_stand_in_that_calls_another_is_one_use() -> None:
    layer = mamba_modules.Mamba2(8, d_state=4, headdim=4)
    before = sum(stand_ins.totals().values())
    layer(torch.randn(1, 3, 8))
    assert sum(stand_ins.totals().values()) == before
    mamba_ssm.mamba_split_conv1d_scan_combined(
        layer.in_proj(torch.randn(1, 3, 8)),
        layer.conv1d.weight.flatten(1),
        None,
        layer.dt_bias,
        -layer.A_log.exp(),
        layer.D,
        2,
        rmsnorm_weight=layer.norm.weight,
        headdim=4,
    )
    assert sum(stand_ins.totals().values()) == before + 1
