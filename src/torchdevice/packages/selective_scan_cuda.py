"""selective_scan_cuda: the compiled module of mamba_ssm, which is missing in a build without CUDA."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchdevice.packages.counting import counted
from torchdevice.packages.mamba_ssm import selective_scan

_BY = "a scan in blocks"


@counted("selective_scan_cuda.fwd", _BY)
def fwd(
    u: Tensor,
    delta: Tensor,
    A: Tensor,  # noqa: N803 - the package's names
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    D: Tensor | None,  # noqa: N803
    z: Tensor | None,
    delta_bias: Tensor | None,
    delta_softplus: bool,
) -> list[Tensor]:
    """The scan, its states, and with z the gated scan. Only the last state: (batch, channels, 1, 2 · size)."""
    out, state = selective_scan(u, delta, A, B, C, D, None, delta_bias, delta_softplus, True)
    states = torch.stack((torch.zeros_like(state), state), dim=-1).flatten(-2).unsqueeze(2)
    wide = torch.promote_types(out.dtype, torch.float32)
    gated = [] if z is None else [(out.to(wide) * torch.nn.functional.silu(z.to(wide))).to(out.dtype)]
    return [out, states, *gated]


@counted("selective_scan_cuda.bwd", f"{_BY}, and its gradients")
def bwd(
    u: Tensor,
    delta: Tensor,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    D: Tensor | None,  # noqa: N803
    z: Tensor | None,
    delta_bias: Tensor | None,
    dout: Tensor,
    states: Tensor | None,
    scan: Tensor | None,
    dz: Tensor | None,
    delta_softplus: bool,
    recompute_out_z: bool,
) -> list[Tensor | None]:
    """The gradients of u, delta, A, B, C, D and the bias; with z its gradient, and the gated scan if requested."""
    tensors = u, delta, A, B, C, D, delta_bias, z
    given: list[Any] = [None if each is None else each.detach().requires_grad_() for each in tensors]
    *inner, bias, gate = given
    with torch.enable_grad():
        x, steps, decay, b, c, skip = inner
        result = selective_scan(x, steps, decay, b, c, skip, gate, bias, delta_softplus, False)
    given.pop()
    wanted = [each for each in (*given, gate) if each is not None]
    found = iter(torch.autograd.grad(result, wanted, dout))
    slopes: list[Tensor | None] = [None if each is None else next(found) for each in given]
    if gate is None:
        return slopes
    slope = next(found)
    return [*slopes, slope if dz is None else dz.copy_(slope), *([result.detach()] if recompute_out_z else [])]
