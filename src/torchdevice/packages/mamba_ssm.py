"""mamba_ssm: the selective scan of Mamba and the chunked scan of Mamba 2, in blocks of steps.

The state follows h[t] = decay[t] · h[t-1] + input[t]. A block of steps is scanned by doubling, in a few
operations. There is no division by a product of decays, so values do not overflow. Blocks are computed in order. The
backward pass computes a block again instead of storing it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torchdevice.errors import CudaOnlyError, explain_error
from torchdevice.packages.causal_conv1d import convolve, within_sequences
from torchdevice.packages.counting import counted
from torchdevice.packages.gated_norms import gated
from torchdevice.packages.norms import rms_norm
from torchdevice.packages.refusals import refuse_arguments

STEPS = 64  # per block


def _scan(decay: Tensor, added: Tensor, state: Tensor) -> Tensor:
    """All states of a block. Time is the last axis."""
    added = torch.cat((added[..., :1] + decay[..., :1] * state.unsqueeze(-1), added[..., 1:]), dim=-1)
    reach, length = 1, added.shape[-1]
    while reach < length:
        carried = F.pad(added[..., :-reach], (reach, 0)) * decay
        decay = decay * F.pad(decay[..., :-reach], (reach, 0), value=1.0)
        added, reach = added + carried, 2 * reach
    return added


def _per_channel(part: Tensor, channels: int) -> Tensor:
    """B or C as (batch, channels, state, length), for every supported shape."""
    if part.dim() == 2:  # equal for all steps
        return part[None, :, :, None]
    if part.dim() == 3:
        return part.unsqueeze(1)
    return part.repeat_interleave(channels // part.shape[1], dim=1)


def _selective_scan(
    u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    """y (batch, channels, length) and the last state (batch, channels, size)."""

    def block(u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        decay = torch.exp(delta.unsqueeze(2) * a[None, :, :, None])
        states = _scan(decay, (delta * u).unsqueeze(2) * b, state)
        return (states * c).sum(dim=2), states[..., -1]

    def part(each: Tensor, at: int) -> Tensor:
        return each[..., at : at + STEPS] if each.shape[-1] > 1 or length == 1 else each

    length, done = u.shape[-1], []
    for at in range(0, length, STEPS):
        given = part(u, at), part(delta, at), a, part(b, at), part(c, at), state
        again = torch.is_grad_enabled() and any(each.requires_grad for each in given)
        y, state = checkpoint(block, *given, use_reentrant=False) if again else block(*given)
        done.append(y)
    y = torch.cat(done, dim=-1) if done else u
    return (y if skip is None else y + u * skip[:, None]), state


def selective_scan(
    u: Tensor,
    delta: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    skip: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
    delta_softplus: bool,
    last_state: bool,
) -> Any:
    """Computes in float32 or wider. The result has the dtype of u."""
    if a.is_complex():
        raise CudaOnlyError(
            explain_error(
                "selective_scan_fn was called with a complex A",
                "the stand-in for mamba_ssm supports only real states",
                "use the real parametrisation, as Mamba's own models do",
            )
        )
    wide = torch.promote_types(u.dtype, torch.float32)
    delta = delta.to(wide) if delta_bias is None else delta.to(wide) + delta_bias[:, None].to(wide)
    delta = F.softplus(delta) if delta_softplus else delta
    b, c = (_per_channel(each.to(wide), u.shape[1]) for each in (b, c))
    skip = None if skip is None else skip.to(wide)
    y, state = _selective_scan(
        u.to(wide), delta, a.to(wide), b, c, skip, u.new_zeros(*u.shape[:2], a.shape[1], dtype=wide)
    )
    y = (y if z is None else y * F.silu(z.to(wide))).to(u.dtype)
    return (y, state) if last_state else y


@counted("mamba_ssm.ops.selective_scan_interface.selective_scan_fn", "a scan in blocks")
def selective_scan_fn(
    u: Tensor,
    delta: Tensor,
    A: Tensor,  # noqa: N803 - the package's names
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    D: Tensor | None = None,  # noqa: N803
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Any:
    """Mamba's scan: u and delta are (batch, channels, length), A (channels, size), B and C (batch, size, length)."""
    return selective_scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus, return_last_state)


selective_scan_ref = selective_scan_fn  # the slow reference version of the package


@counted("mamba_ssm.ops.selective_scan_interface.mamba_inner_fn", "a scan in blocks")
def mamba_inner_fn(
    xz: Tensor,
    conv1d_weight: Tensor,
    conv1d_bias: Tensor | None,
    x_proj_weight: Tensor,
    delta_proj_weight: Tensor,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    A: Tensor,  # noqa: N803
    B: Tensor | None = None,  # noqa: N803
    C: Tensor | None = None,  # noqa: N803
    D: Tensor | None = None,  # noqa: N803
    delta_bias: Tensor | None = None,
    B_proj_bias: Tensor | None = None,  # noqa: N803
    C_proj_bias: Tensor | None = None,  # noqa: N803
    delta_softplus: bool = True,
    checkpoint_lvl: int = 1,
    b_rms_weight: Tensor | None = None,
    c_rms_weight: Tensor | None = None,
    dt_rms_weight: Tensor | None = None,
    b_c_dt_rms_eps: float = 1e-6,
) -> Tensor:
    """A Mamba block after its first projection: convolution, scan, gate and the last projection."""
    x, z = xz.chunk(2, dim=1)
    weight = conv1d_weight.flatten(1)
    x = convolve(F.pad(x, (weight.shape[1] - 1, 0)), weight, conv1d_bias, "silu")
    rank, size = delta_proj_weight.shape[1], A.shape[1]
    given = F.linear(x.transpose(1, 2), x_proj_weight)
    delta, rest = given[..., :rank], given[..., rank:]
    if dt_rms_weight is not None:
        delta = rms_norm(delta, dt_rms_weight, b_c_dt_rms_eps)
    if B is None:
        part, rest = rest[..., :size], rest[..., size:]
        part = part if B_proj_bias is None else part + B_proj_bias
        part = part if b_rms_weight is None else rms_norm(part, b_rms_weight, b_c_dt_rms_eps)
        B = part.transpose(1, 2)  # noqa: N806
    if C is None:
        part = rest[..., :size] if C_proj_bias is None else rest[..., :size] + C_proj_bias
        part = part if c_rms_weight is None else rms_norm(part, c_rms_weight, b_c_dt_rms_eps)
        C = part.transpose(1, 2)  # noqa: N806
    delta = F.linear(delta, delta_proj_weight).transpose(1, 2)
    y = selective_scan(x, delta, A, B, C, D, z, delta_bias, delta_softplus, False)
    return F.linear(y.transpose(1, 2), out_proj_weight, out_proj_bias)


@counted("mamba_ssm.ops.triton.selective_state_update.selective_state_update", "one step")
def selective_state_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    D: Tensor | None = None,  # noqa: N803
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: Tensor | None = None,
) -> Tensor:
    """One step. `state` (batch, [heads,] channels, size) is updated in place. Groups of heads may share B and C."""
    rows = slice(None) if state_batch_indices is None else state_batch_indices.long()
    before = state[rows]
    wide = torch.promote_types(before.dtype, torch.float32)
    delta = dt.to(wide) if dt_bias is None else dt.to(wide) + dt_bias.to(wide)
    delta = F.softplus(delta) if dt_softplus else delta
    if before.dim() == 4:
        B, C = (each.repeat_interleave(before.shape[1] // each.shape[1], dim=1) for each in (B, C))  # noqa: N806
    added = (delta * x.to(wide)).unsqueeze(-1) * B.to(wide).unsqueeze(-2)
    after = before.to(wide) * torch.exp(delta.unsqueeze(-1) * A.to(wide)) + added
    state[rows] = after.to(state.dtype)
    y = (after * C.to(wide).unsqueeze(-2)).sum(dim=-1)
    y = y if D is None else y + x.to(wide) * D.to(wide)
    return (y if z is None else y * F.silu(z.to(wide))).to(x.dtype)


@counted("mamba_ssm.ops.triton.ssd_combined.mamba_chunk_scan_combined", "a scan in chunks")
def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    chunk_size: int,
    D: Tensor | None = None,  # noqa: N803
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
) -> Any:
    """The scan of Mamba 2.

    x is (batch, length, heads, width), dt (batch, length, heads), B and C (batch, length, groups, size).
    """
    states = {"return_varlen_states": return_varlen_states}
    refuse_arguments("mamba_chunk_scan_combined", "the stand-in keeps only the last state", states)
    asked = D, z, dt_bias, initial_states, seq_idx, dt_softplus, dt_limit, return_final_states
    return _chunk_scan(x, dt, A, B, C, chunk_size, *asked)


def _chunk_scan(
    x: Tensor,
    dt: Tensor,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    chunk_size: int,
    D: Tensor | None,  # noqa: N803
    z: Tensor | None,
    dt_bias: Tensor | None,
    initial_states: Tensor | None,
    seq_idx: Tensor | None,
    dt_softplus: bool,
    dt_limit: tuple[float, float],
    return_final_states: bool,
) -> Any:
    wide = torch.promote_types(x.dtype, torch.float32)
    delta = dt.to(wide) if dt_bias is None else dt.to(wide) + dt_bias.to(wide)
    delta = (F.softplus(delta) if dt_softplus else delta).clamp(*dt_limit)
    heads = x.shape[2]
    b, c = (each.to(wide).repeat_interleave(heads // each.shape[2], dim=2) for each in (B, C))
    given, log_decay = x.to(wide) * delta.unsqueeze(-1), delta * A.to(wide)
    shape = (x.shape[0], heads, x.shape[3], b.shape[3])
    state = x.new_zeros(shape, dtype=wide) if initial_states is None else initial_states.to(wide)
    sequence = x.new_zeros(x.shape[:2], dtype=torch.int32) if seq_idx is None else seq_idx
    before, done = sequence[:, :1], []
    for at in range(0, x.shape[1], chunk_size):
        part = slice(at, at + chunk_size)
        y, state = _chunk(given[:, part], log_decay[:, part], b[:, part], c[:, part], state, sequence[:, part], before)
        before = sequence[:, part][:, -1:]
        done.append(y)
    y = torch.cat(done, dim=1)
    if D is not None:
        y = y + x.to(wide) * (D.to(wide) if D.dim() == 2 else D.to(wide)[:, None])
    y = (y if z is None else y * F.silu(z.to(wide))).to(x.dtype)
    return (y, state) if return_final_states else y


def _chunk(
    x: Tensor, log_decay: Tensor, b: Tensor, c: Tensor, state: Tensor, sequence: Tensor, before: Tensor
) -> tuple[Tensor, Tensor]:
    """The scan of a chunk: a matrix within the chunk, and the state for all previous steps."""
    sums = log_decay.cumsum(dim=1).transpose(1, 2)  # (batch, heads, steps)
    steps = x.shape[1]
    same = (sequence[:, :, None] == sequence[:, None, :]).unsqueeze(1)
    seen = same & torch.ones(steps, steps, dtype=torch.bool, device=x.device).tril()
    decay = torch.exp((sums[..., :, None] - sums[..., None, :]).masked_fill(~seen, -torch.inf))
    scores = torch.einsum("bthn,bshn->bhts", c, b) * decay
    y = torch.einsum("bhts,bshp->bthp", scores, x)
    carried = torch.exp(sums) * (sequence == before).unsqueeze(1)
    y = y + torch.einsum("bthn,bhpn,bht->bthp", c, state, carried)
    last = torch.exp(sums[..., -1:] - sums) * (sequence == sequence[:, -1:]).unsqueeze(1)
    state = state * carried[..., -1, None, None] + torch.einsum("bshp,bshn,bhs->bhpn", x, b, last)
    return y, state


@counted("mamba_ssm.ops.triton.ssd_combined.mamba_split_conv1d_scan_combined", "conv1d and a scan in chunks")
def mamba_split_conv1d_scan_combined(
    zxbcdt: Tensor,
    conv1d_weight: Tensor,
    conv1d_bias: Tensor | None,
    dt_bias: Tensor,
    A: Tensor,  # noqa: N803
    D: Tensor,  # noqa: N803
    chunk_size: int,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    activation: str | None = "silu",
    rmsnorm_weight: Tensor | None = None,
    rmsnorm_eps: float = 1e-6,
    outproj_weight: Tensor | None = None,
    outproj_bias: Tensor | None = None,
    headdim: int | None = None,
    ngroups: int = 1,
    norm_before_gate: bool = True,
) -> Any:
    """A block of Mamba 2 after its first projection: convolution, scan, gated RMSNorm and the last projection."""
    asked = initial_states, seq_idx, dt_limit, return_final_states, activation, rmsnorm_weight, rmsnorm_eps
    rest = outproj_weight, outproj_bias, headdim, ngroups, norm_before_gate
    return split_scan(zxbcdt, conv1d_weight, conv1d_bias, dt_bias, A, D, chunk_size, *asked, *rest)


def split_scan(
    zxbcdt: Tensor,
    conv1d_weight: Tensor,
    conv1d_bias: Tensor | None,
    dt_bias: Tensor,
    A: Tensor,  # noqa: N803
    D: Tensor,  # noqa: N803
    chunk_size: int,
    initial_states: Tensor | None,
    seq_idx: Tensor | None,
    dt_limit: tuple[float, float],
    return_final_states: bool,
    activation: str | None,
    rmsnorm_weight: Tensor | None,
    rmsnorm_eps: float,
    outproj_weight: Tensor | None,
    outproj_bias: Tensor | None,
    headdim: int | None,
    ngroups: int,
    norm_before_gate: bool,
) -> Any:
    """`mamba_split_conv1d_scan_combined` without counting, for the layer."""
    heads, width = D.shape if D.dim() == 2 else (len(D), headdim)
    assert width is not None, "headdim must be passed if D has one axis"
    inner = heads * width
    size = (zxbcdt.shape[-1] - 2 * inner - heads) // (2 * ngroups)
    z, mixed, dt = zxbcdt.split((inner, inner + 2 * ngroups * size, heads), dim=-1)
    mixed, past = mixed.transpose(1, 2), conv1d_weight.shape[1] - 1
    if seq_idx is None:
        mixed = convolve(F.pad(mixed, (past, 0)), conv1d_weight, conv1d_bias, activation)
    else:
        mixed = within_sequences(mixed, conv1d_weight, conv1d_bias, seq_idx, activation)
    x, b, c = mixed.transpose(1, 2).split((inner, ngroups * size, ngroups * size), dim=-1)
    x, gate = (each.unflatten(-1, (heads, width)) for each in (x, z))
    b, c = (each.unflatten(-1, (ngroups, size)) for each in (b, c))
    gate_in_scan = gate if rmsnorm_weight is None else None
    asked = D, gate_in_scan, dt_bias, initial_states, seq_idx, True, dt_limit, True
    out, last = _chunk_scan(x, dt, A, b, c, chunk_size, *asked)
    out = out.flatten(-2)
    if rmsnorm_weight is not None:
        out = gated(out, rmsnorm_weight, None, z, rmsnorm_eps, inner // ngroups, norm_before_gate, rms=True)
    if outproj_weight is not None:
        out = F.linear(out, outproj_weight, outproj_bias)
    return (out, last) if return_final_states else out
