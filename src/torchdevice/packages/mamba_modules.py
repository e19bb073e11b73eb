"""mamba_ssm's layers with the names that checkpoints have: Mamba, Mamba 2, and the block around them."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from torchdevice.packages.causal_conv1d import convolve
from torchdevice.packages.counting import counted
from torchdevice.packages.flash_attn_norms import RMSNorm, layer_norm_fn
from torchdevice.packages.mamba_ssm import selective_scan, split_scan
from torchdevice.packages.refusals import refuse_arguments


@counted("mamba_ssm.Mamba", "conv1d and a scan in blocks")
class Mamba(nn.Module):
    """A Mamba block. Input and output are (batch, length, width)."""

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
        """Computes all steps. A cache is not supported; `selective_state_update` computes single steps."""
        if inference_params is not None:
            raise NotImplementedError("the stand-in for mamba_ssm's Mamba has no cache: pass whole sequences")
        x, z = self.in_proj(hidden_states).transpose(1, 2).chunk(2, dim=1)
        x = convolve(F.pad(x, (self.d_conv - 1, 0)), self.conv1d.weight.flatten(1), self.conv1d.bias, "silu")
        sizes = (self.dt_rank, self.d_state, self.d_state)
        delta, b, c = self.x_proj(x.transpose(1, 2)).split(sizes, dim=-1)
        delta = F.linear(delta, self.dt_proj.weight).transpose(1, 2)
        a = -torch.exp(self.A_log.float())
        b, c = b.transpose(1, 2), c.transpose(1, 2)
        y = selective_scan(x, delta, a, b, c, self.D.float(), z, self.dt_proj.bias.float(), True, False)
        return self.out_proj(y.transpose(1, 2))


_CACHES = "the stand-in for mamba_ssm has no cache: pass whole sequences"


@counted("mamba_ssm.Mamba2", "conv1d and a scan in chunks")
class Mamba2(nn.Module):
    """A block of Mamba 2. Input and output are (batch, length, width)."""

    def __init__(
        self,
        d_model: int,
        d_state: int = 128,
        d_conv: int = 4,
        conv_init: float | None = None,
        expand: int = 2,
        headdim: int = 64,
        d_ssm: int | None = None,
        ngroups: int = 1,
        A_init_range: tuple[float, float] = (1, 16),  # noqa: N803
        D_has_hdim: bool = False,  # noqa: N803
        rmsnorm: bool = True,
        norm_before_gate: bool = False,
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        dt_init_floor: float = 1e-4,
        dt_limit: tuple[float, float] = (0.0, float("inf")),
        bias: bool = False,
        conv_bias: bool = True,
        chunk_size: int = 256,
        use_mem_eff_path: bool = True,
        layer_idx: int | None = None,
        process_group: Any = None,
        sequence_parallel: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        inner = expand * d_model
        parts = {"process_group": process_group, "d_ssm": d_ssm is not None and d_ssm != inner}
        refuse_arguments("mamba_ssm.Mamba2", "the stand-in supports one process, and no parallel MLP", parts)
        where = {"device": device, "dtype": dtype}
        self.d_model, self.d_state, self.d_conv, self.expand, self.headdim = d_model, d_state, d_conv, expand, headdim
        self.d_inner, self.d_ssm, self.ngroups, self.nheads = inner, inner, ngroups, inner // headdim
        self.D_has_hdim, self.rmsnorm, self.norm_before_gate = D_has_hdim, rmsnorm, norm_before_gate
        self.dt_limit, self.chunk_size, self.layer_idx, self.activation = dt_limit, chunk_size, layer_idx, "silu"
        mixed = inner + 2 * ngroups * d_state
        self.in_proj = nn.Linear(d_model, inner + mixed + self.nheads, bias=bias, **where)
        self.conv1d = nn.Conv1d(mixed, mixed, d_conv, groups=mixed, padding=d_conv - 1, bias=conv_bias, **where)
        if conv_init is not None:
            nn.init.uniform_(self.conv1d.weight, -conv_init, conv_init)
        steps = torch.rand(self.nheads, device=device) * (math.log(dt_max) - math.log(dt_min)) + math.log(dt_min)
        steps = steps.exp().clamp(min=dt_init_floor)
        self.dt_bias = nn.Parameter((steps + torch.log(-torch.expm1(-steps))).to(dtype))  # the inverse of softplus
        sizes = torch.empty(self.nheads, dtype=torch.float32, device=device).uniform_(*A_init_range)
        self.A_log = nn.Parameter(sizes.log().to(dtype))
        self.D = nn.Parameter(torch.ones(inner if D_has_hdim else self.nheads, device=device))
        for each in (self.dt_bias, self.A_log, self.D):
            each._no_weight_decay = True
        if rmsnorm:
            self.norm = nn.RMSNorm(inner, eps=1e-5, **where)
        self.out_proj = nn.Linear(inner, d_model, bias=bias, **where)

    def forward(
        self,
        u: Tensor,
        seqlen: int | None = None,
        seq_idx: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        inference_params: Any = None,
    ) -> Tensor:
        """u is (batch, length, width), or with `seqlen` (batch · length, width)."""
        cached = {"inference_params": inference_params, "cu_seqlens": cu_seqlens}
        refuse_arguments("mamba_ssm.Mamba2", _CACHES, cached)
        rows = u if seqlen is None else u.unflatten(0, (-1, seqlen))
        out = split_scan(
            self.in_proj(rows),
            self.conv1d.weight.flatten(1),
            self.conv1d.bias,
            self.dt_bias,
            -torch.exp(self.A_log.float()),
            self.D.unflatten(0, (-1, self.headdim)) if self.D_has_hdim else self.D,
            self.chunk_size,
            initial_states=None,
            seq_idx=seq_idx,
            dt_limit=self.dt_limit,
            return_final_states=False,
            activation=self.activation,
            rmsnorm_weight=self.norm.weight if self.rmsnorm else None,
            rmsnorm_eps=1e-5,
            outproj_weight=self.out_proj.weight,
            outproj_bias=self.out_proj.bias,
            headdim=None if self.D_has_hdim else self.headdim,
            ngroups=self.ngroups,
            norm_before_gate=self.norm_before_gate,
        )
        return out if seqlen is None else out.flatten(0, 1)


class Block(nn.Module):
    """Adds the residual, normalises and mixes, then the same with an MLP. Returns the result and the residual."""

    def __init__(
        self,
        dim: int,
        mixer_cls: Any,
        mlp_cls: Any = nn.Identity,
        norm_cls: Any = nn.LayerNorm,
        fused_add_norm: bool = False,
        residual_in_fp32: bool = False,
    ) -> None:
        super().__init__()
        self.residual_in_fp32, self.fused_add_norm = residual_in_fp32, fused_add_norm
        self.mixer, self.norm = mixer_cls(dim), norm_cls(dim)
        self.mlp = None if mlp_cls is nn.Identity else mlp_cls(dim)
        if self.mlp is not None:
            self.norm2 = norm_cls(dim)

    def _normed(self, norm: Any, x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.fused_add_norm:
            asked = {"prenorm": True, "residual_in_fp32": self.residual_in_fp32, "eps": norm.eps}
            return layer_norm_fn(x, norm.weight, norm.bias, residual, is_rms_norm=isinstance(norm, RMSNorm), **asked)
        total = x if residual is None else x + residual
        return norm(total.to(norm.weight.dtype)), total.float() if self.residual_in_fp32 else total

    def forward(
        self, hidden_states: Tensor, residual: Tensor | None = None, inference_params: Any = None, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Returns the result and the residual, both for the next block."""
        x, residual = self._normed(self.norm, hidden_states, residual)
        x = self.mixer(x, inference_params=inference_params, **options)
        if self.mlp is not None:
            x, residual = self._normed(self.norm2, x, residual)
            x = self.mlp(x)
        return x, residual
