"""mamba_ssm.ops.triton.layernorm_gated: normalisation over groups of channels, with a gate before or after it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from torchdevice.packages.counting import counted
from torchdevice.packages.norms import layer_norm, rms_norm


@counted("mamba_ssm.ops.triton.layernorm_gated.rmsnorm_fn", "rms_norm")
def rmsnorm_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    z: Tensor | None = None,
    eps: float = 1e-6,
    group_size: int | None = None,
    norm_before_gate: bool = True,
) -> Tensor:
    """RMSNorm over groups of channels, with a gate before or after it."""
    return gated(x, weight, bias, z, eps, group_size, norm_before_gate, rms=True)


@counted("mamba_ssm.ops.triton.layernorm_gated.layernorm_fn", "layer_norm")
def layernorm_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    z: Tensor | None = None,
    eps: float = 1e-6,
    group_size: int | None = None,
    norm_before_gate: bool = True,
    is_rms_norm: bool = False,
) -> Tensor:
    """LayerNorm over groups of channels, with a gate before or after it."""
    return gated(x, weight, bias, z, eps, group_size, norm_before_gate, rms=is_rms_norm)


def gated(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    z: Tensor | None,
    eps: float,
    group: int | None,
    before: bool,
    rms: bool,
) -> Tensor:
    """Both normalisations."""
    wide = torch.promote_types(x.dtype, torch.float32)
    y = x.to(wide)
    if z is not None and not before:
        y = y * F.silu(z.to(wide))
    parts = y.unflatten(-1, (-1, group or x.shape[-1]))
    normed = (rms_norm(parts, None, eps) if rms else layer_norm(parts, None, None, eps)).flatten(-2)
    y = normed * weight.to(wide) + (0.0 if bias is None else bias.to(wide))
    if z is not None and before:
        y = y * F.silu(z.to(wide))
    return y.to(x.dtype)


@counted("mamba_ssm.ops.triton.layernorm_gated.RMSNorm", "rms_norm")
class RMSNorm(nn.RMSNorm):
    """The gated RMSNorm as a layer."""

    bias = None

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        group_size: int | None = None,
        norm_before_gate: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(hidden_size, eps=eps, device=device, dtype=dtype)
        self.group_size, self.norm_before_gate = group_size, norm_before_gate

    def forward(self, x: Tensor, z: Tensor | None = None) -> Tensor:
        """The normalised x."""
        return gated(x, self.weight, None, z, self.eps or 1e-5, self.group_size, self.norm_before_gate, rms=True)
