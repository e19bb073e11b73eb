"""The block of mamba_ssm.modules.mamba_simple in version 1."""

from __future__ import annotations

from typing import Any

from torch import nn

from torchdevice.packages import mamba_modules


class Block(mamba_modules.Block):
    """Adds the residual, normalises and mixes. Returns the result and the residual. It has no MLP."""

    def __init__(
        self,
        dim: int,
        mixer_cls: Any,
        norm_cls: Any = nn.LayerNorm,
        fused_add_norm: bool = False,
        residual_in_fp32: bool = False,
    ) -> None:
        super().__init__(dim, mixer_cls, nn.Identity, norm_cls, fused_add_norm, residual_in_fp32)
