"""flash_attn.ops: normalisations that add a residual and drop out on the way, by torch.nn.functional."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from torchdevice.packages.counting import count, counted
from torchdevice.packages.norms import layer_norm
from torchdevice.packages.norms import rms_norm as _rms_norm

_OPS = "flash_attn.ops"


def _normalized(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float, rms: bool) -> Tensor:
    return _rms_norm(x, weight, epsilon, bias) if rms else layer_norm(x, weight, bias, epsilon)


def _added(
    x: Tensor,
    residual: Tensor | None,
    dropout: float,
    rowscale: Tensor | None,
    layerscale: Tensor | None,
    in_float32: bool,
) -> tuple[Tensor, Tensor]:
    """What is normalised and becomes the next residual, and what dropout kept."""
    scaled = x if layerscale is None else x * layerscale
    scaled = scaled if rowscale is None else scaled * rowscale[..., None].to(scaled.dtype)
    mask = torch.empty_like(scaled).bernoulli_(1 - dropout) if dropout else torch.ones_like(scaled)
    kept = scaled * mask / (1 - dropout) if dropout else scaled
    dtype = torch.float32 if in_float32 else kept.dtype if residual is None else residual.dtype
    total = kept.to(torch.promote_types(dtype, torch.float32))
    return (total if residual is None else total + residual).to(dtype), mask


def _dropout_add_norm(
    rms: bool,
    x0: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    dropout_p: float,
    epsilon: float,
    rowscale: Tensor | None = None,
    layerscale: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    return_dropout_mask: bool = False,
) -> Any:
    total, mask = _added(x0, residual, dropout_p, rowscale, layerscale, residual_in_fp32)
    normed = _normalized(total, weight, bias, epsilon, rms).to(x0.dtype)
    given = [normed, *([total] if prenorm else []), *([mask.bool()] if return_dropout_mask else [])]
    return tuple(given) if len(given) > 1 else normed


def dropout_add_layer_norm(
    x0: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor | None, *args: Any, **kwargs: Any
) -> Any:
    """LayerNorm(dropout(x0) + residual)."""
    count(f"{_OPS}.layer_norm.dropout_add_layer_norm", "layer_norm")
    return _dropout_add_norm(False, x0, residual, weight, bias, *args, **kwargs)


def dropout_add_rms_norm(
    x0: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor | None, *args: Any, **kwargs: Any
) -> Any:
    """RMSNorm(dropout(x0) + residual)."""
    count(f"{_OPS}.rms_norm.dropout_add_rms_norm", "rms_norm")
    return _dropout_add_norm(True, x0, residual, weight, bias, *args, **kwargs)


@counted(f"{_OPS}.rms_norm.rms_norm", "rms_norm")
def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """RMSNorm(x)."""
    return _rms_norm(x, weight, epsilon)


@counted(f"{_OPS}.layer_norm.DropoutAddLayerNorm", "layer_norm")
class DropoutAddLayerNorm(torch.nn.LayerNorm):
    """LayerNorm(dropout(x) + residual) as a layer."""

    _rms = False

    def __init__(
        self,
        hidden_size: int,
        prenorm: bool = False,
        p: float = 0.0,
        eps: float = 1e-5,
        residual_in_fp32: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(hidden_size, eps=eps, bias=not self._rms, device=device, dtype=dtype)
        self.prenorm, self.p, self.residual_in_fp32 = prenorm, p, residual_in_fp32

    def forward(self, x0: Tensor, residual: Tensor | None = None) -> Any:
        """The normalised sum; with `prenorm` the sum too."""
        p = self.p if self.training else 0.0
        given = x0, residual, self.weight, self.bias, p, self.eps
        return _dropout_add_norm(self._rms, *given, prenorm=self.prenorm, residual_in_fp32=self.residual_in_fp32)


@counted(f"{_OPS}.rms_norm.DropoutAddRMSNorm", "rms_norm")
class DropoutAddRMSNorm(DropoutAddLayerNorm):
    """RMSNorm(dropout(x) + residual) as a layer."""

    _rms = True


@counted(f"{_OPS}.rms_norm.RMSNorm", "rms_norm")
class RMSNorm(torch.nn.RMSNorm):
    """RMSNorm as a layer."""

    bias = None

    def __init__(self, hidden_size: int, eps: float = 1e-5, device: Any = None, dtype: Any = None) -> None:
        super().__init__(hidden_size, eps=eps, device=device, dtype=dtype)

    def forward(
        self, x: Tensor, residual: Tensor | None = None, prenorm: bool = False, residual_in_fp32: bool = False
    ) -> Any:
        """The normalised x, or sum of x and the residual; with `prenorm` the sum too."""
        given = x, residual, self.weight, None, 0.0, self.eps
        return _dropout_add_norm(True, *given, prenorm=prenorm, residual_in_fp32=residual_in_fp32)


def _norm_fn(
    name: str,
    rms: bool,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    eps: float,
    dropout_p: float,
    rowscale: Tensor | None,
    prenorm: bool,
    residual_in_fp32: bool,
) -> Any:
    count(f"{_OPS}.triton.layer_norm.{name}", "rms_norm" if rms else "layer_norm")
    given = x, residual, weight, bias, dropout_p, eps, rowscale
    return _dropout_add_norm(rms, *given, prenorm=prenorm, residual_in_fp32=residual_in_fp32)


def layer_norm_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    is_rms_norm: bool = False,
) -> Any:
    """The normalised sum of x and the residual, by Triton's name."""
    given = x, weight, bias, residual, eps, dropout_p, rowscale, prenorm, residual_in_fp32
    return _norm_fn("layer_norm_fn", is_rms_norm, *given)


def rms_norm_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
) -> Any:
    """The same without means."""
    given = x, weight, bias, residual, eps, dropout_p, rowscale, prenorm, residual_in_fp32
    return _norm_fn("rms_norm_fn", True, *given)


@counted(f"{_OPS}.activations.swiglu", "silu")
def swiglu(x: Tensor, y: Tensor) -> Tensor:
    """silu(x) · y."""
    return F.silu(x) * y


@counted(f"{_OPS}.fused_dense.FusedDense", "torch.nn.Linear")
class FusedDense(torch.nn.Linear):
    """A linear layer; `return_residual` gives its input back too."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        return_residual: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias=bias, device=device, dtype=dtype)
        self.return_residual = return_residual

    def forward(self, x: Tensor) -> Any:
        return (super().forward(x), x) if self.return_residual else super().forward(x)
