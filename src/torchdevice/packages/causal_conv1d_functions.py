"""causal_conv1d.cpp_functions: the convolution and its gradients as two functions, which mamba_ssm calls."""

from __future__ import annotations

import torch
from torch import Tensor

from torchdevice.packages.causal_conv1d import causal_conv1d_fn, causal_conv1d_update


def _activation(silu: bool) -> str | None:
    return "silu" if silu else None


def causal_conv1d_fwd_function(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    seq_idx: Tensor | None,
    initial_states: Tensor | None,
    final_states_out: Tensor | None,
    silu_activation: bool,
) -> Tensor:
    """The convolution. The last steps are written to `final_states_out`."""
    with torch.no_grad():
        keeps = final_states_out is not None
        asked = seq_idx, initial_states, keeps, final_states_out, _activation(silu_activation)
        done = causal_conv1d_fn(x, weight, bias, *asked)
    return done[0] if keeps else done


def causal_conv1d_bwd_function(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    dout: Tensor,
    seq_idx: Tensor | None,
    initial_states: Tensor | None,
    dfinal_states: Tensor | None,
    dx: Tensor | None,
    return_dinitial_states: bool,
    silu_activation: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """The gradients of x (written to `dx` if given), weight, bias and the initial states."""
    given = [None if each is None else each.detach().requires_grad_() for each in (x, weight, bias, initial_states)]
    with torch.enable_grad():
        keeps = dfinal_states is not None
        asked = given[2], seq_idx, given[3], keeps, None, _activation(silu_activation)
        done = causal_conv1d_fn(given[0], given[1], *asked)
    wanted = [each for each in given if each is not None]
    found = iter(torch.autograd.grad(done, wanted, (dout, dfinal_states) if keeps else dout))
    slopes = [None if each is None else next(found) for each in given]
    first = slopes[3] if return_dinitial_states else None
    assert slopes[0] is not None
    assert slopes[1] is not None
    return (slopes[0] if dx is None else dx.copy_(slopes[0])), slopes[1], slopes[2], first


def causal_conv1d_update_function(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    silu_activation: bool,
    cache_seqlens: Tensor | None,
    conv_state_indices: Tensor | None,
) -> Tensor:
    """One or more steps after those in `conv_state`, which is updated in place."""
    asked = _activation(silu_activation), cache_seqlens, conv_state_indices
    return causal_conv1d_update(x, conv_state, weight, bias, *asked)
