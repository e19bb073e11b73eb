"""mamba_ssm's layers: Mamba, with the names that checkpoints have, and gated normalisation."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from torchdevice.packages.causal_conv1d import convolve
from torchdevice.packages.counting import counted
from torchdevice.packages.mamba_ssm import selective_scan
from torchdevice.packages.norms import layer_norm, rms_norm


@counted("mamba_ssm.Mamba", "conv1d and a scan in blocks")
class Mamba(nn.Module):
    """A Mamba block: (batch, length, width) to the same."""

    def __init__(
        self,
        d_model: int,
        d_state: int = 16,
        d_conv: int = 4,
        expand: int = 2,
        dt_rank: int | str = "auto",
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        dt_init: str = "random",
        dt_scale: float = 1.0,
        dt_init_floor: float = 1e-4,
        conv_bias: bool = True,
        bias: bool = False,
        use_fast_path: bool = True,
        layer_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        self.d_model, self.d_state, self.d_conv, self.expand = d_model, d_state, d_conv, expand
        self.d_inner, self.layer_idx = int(expand * d_model), layer_idx
        self.dt_rank = math.ceil(d_model / 16) if isinstance(dt_rank, str) else dt_rank
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=bias, **where)
        self.conv1d = nn.Conv1d(
            self.d_inner, self.d_inner, d_conv, groups=self.d_inner, padding=d_conv - 1, bias=conv_bias, **where
        )
        self.x_proj = nn.Linear(self.d_inner, self.dt_rank + 2 * d_state, bias=False, **where)
        self.dt_proj = nn.Linear(self.dt_rank, self.d_inner, bias=True, **where)
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=bias, **where)
        self._start(dt_min, dt_max, dt_init, dt_scale, dt_init_floor)

    def _start(self, least: float, most: float, kind: str, scale: float, floor: float) -> None:
        weight, bias = self.dt_proj.weight, self.dt_proj.bias
        deviation = self.dt_rank**-0.5 * scale
        if kind == "constant":
            nn.init.constant_(weight, deviation)
        else:
            nn.init.uniform_(weight, -deviation, deviation)
        steps = torch.exp(torch.rand_like(bias.float()) * (math.log(most) - math.log(least)) + math.log(least))
        steps = steps.clamp(min=floor)
        with torch.no_grad():
            bias.copy_(steps + torch.log(-torch.expm1(-steps)))  # the inverse of softplus
        bias._no_reinit = True
        sizes = torch.arange(1, self.d_state + 1, dtype=torch.float32, device=bias.device)
        self.A_log = nn.Parameter(sizes.repeat(self.d_inner, 1).log())
        self.D = nn.Parameter(torch.ones(self.d_inner, dtype=torch.float32, device=bias.device))
        self.A_log._no_weight_decay = self.D._no_weight_decay = True

    def forward(self, hidden_states: Tensor, inference_params: Any = None) -> Tensor:
        """All steps at once. A cache of former steps is left to who generates: `selective_state_update` is there."""
        if inference_params is not None:
            raise NotImplementedError("the stand-in for mamba_ssm's Mamba keeps no cache: pass whole sequences")
        x, z = self.in_proj(hidden_states).transpose(1, 2).chunk(2, dim=1)
        x = convolve(F.pad(x, (self.d_conv - 1, 0)), self.conv1d.weight.flatten(1), self.conv1d.bias, "silu")
        sizes = (self.dt_rank, self.d_state, self.d_state)
        delta, b, c = self.x_proj(x.transpose(1, 2)).split(sizes, dim=-1)
        delta = F.linear(delta, self.dt_proj.weight).transpose(1, 2)
        a = -torch.exp(self.A_log.float())
        b, c = b.transpose(1, 2), c.transpose(1, 2)
        y = selective_scan(x, delta, a, b, c, self.D.float(), z, self.dt_proj.bias.float(), True, False)
        return self.out_proj(y.transpose(1, 2))


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
    return _gated(x, weight, bias, z, eps, group_size, norm_before_gate, rms=True)


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
    return _gated(x, weight, bias, z, eps, group_size, norm_before_gate, rms=is_rms_norm)


def _gated(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    z: Tensor | None,
    eps: float,
    group: int | None,
    before: bool,
    rms: bool,
) -> Tensor:
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
        return _gated(x, self.weight, None, z, self.eps or 1e-5, self.group_size, self.norm_before_gate, rms=True)
