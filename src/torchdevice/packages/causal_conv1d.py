"""causal_conv1d: a convolution over time without access to later steps, by torch's grouped convolution."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from torchdevice.packages.counting import counted


def _activated(x: Tensor, activation: str | None) -> Tensor:
    if activation not in (None, "silu", "swish"):
        raise NotImplementedError("activation must be None, silu, or swish")
    return x if activation is None else F.silu(x)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    """x is (batch, channels, length + width - 1), weight (channels, width)."""
    wide = torch.promote_types(x.dtype, weight.dtype)
    bias = None if bias is None else bias.to(wide)
    out = F.conv1d(x.to(wide), weight.to(wide).unsqueeze(1), bias, groups=len(weight))
    return _activated(out, activation).to(x.dtype)


def within_sequences(x: Tensor, weight: Tensor, bias: Tensor | None, index: Tensor, activation: str | None) -> Tensor:
    """The convolution of several sequences in one row. `index` (batch, length) is the number of the sequence."""
    width, length = weight.shape[1], x.shape[2]
    total = x.new_zeros(x.shape) if bias is None else bias[None, :, None].expand(x.shape).to(x.dtype)
    for back in range(min(width, length)):
        before, sequence = F.pad(x, (back, 0))[..., :length], F.pad(index, (back, 0), value=-1)[..., :length]
        same = (sequence == index).unsqueeze(1)
        total = total + before * same * weight[:, width - 1 - back, None]
    return _activated(total, activation).to(x.dtype)


@counted("causal_conv1d.causal_conv1d_fn", "conv1d")
def causal_conv1d_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    seq_idx: Tensor | None = None,
    initial_states: Tensor | None = None,
    return_final_states: bool = False,
    final_states_out: Tensor | None = None,
    activation: str | None = None,
) -> Any:
    """Convolution of x (batch, channels, length). Optionally returns the last steps of x, for the next call."""
    width = weight.shape[1]
    if seq_idx is not None:
        assert initial_states is None, "initial_states must be None if seq_idx is not None"
        assert not return_final_states, "If seq_idx is not None, we don't return final_states_out"
        return within_sequences(x, weight, bias, seq_idx, activation)
    past = F.pad(x, (width - 1, 0)) if initial_states is None else torch.cat((initial_states.to(x.dtype), x), dim=-1)
    out = convolve(past, weight, bias, activation)
    if not return_final_states:
        return out
    last = past[..., past.shape[-1] - (width - 1) :]
    return out, last if final_states_out is None else final_states_out.copy_(last)


@counted("causal_conv1d.causal_conv1d_update", "conv1d")
def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
) -> Tensor:
    """One or more steps after those in `conv_state` (batch, channels, steps), which is updated in place.

    With `cache_seqlens` the state is a ring buffer. The next step is written to that index modulo the length.
    """
    steps = x.unsqueeze(-1) if x.dim() == 2 else x
    length, width = steps.shape[-1], weight.shape[1]
    rows = slice(None) if conv_state_indices is None else conv_state_indices.long()
    state = conv_state[rows]
    if cache_seqlens is None:
        whole = torch.cat((state, steps.to(state.dtype)), dim=-1)
        conv_state[rows] = whole[..., length:]
        seen = whole[..., whole.shape[-1] - (width - 1) - length :]
    else:
        size, places = state.shape[-1], torch.arange(1 - width, length, device=x.device) + cache_seqlens[:, None]
        index = (places % size).unsqueeze(1).expand(-1, state.shape[1], -1)
        old = state.gather(2, index[..., : width - 1])
        conv_state[rows] = state.scatter(2, index[..., width - 1 :], steps.to(state.dtype))
        seen = torch.cat((old, steps.to(state.dtype)), dim=-1)
    out = convolve(seen.to(x.dtype), weight, bias, activation)
    return out.squeeze(-1) if x.dim() == 2 else out
