"""flash_attn.ops: normalisations with dropout and a residual, by torch.nn.functional."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from torchdevice.packages.counting import count, counted
from torchdevice.packages.norms import layer_norm as _layer_norm
from torchdevice.packages.norms import rms_norm as _rms_norm
from torchdevice.packages.refusals import refuse_arguments

_OPS = "flash_attn.ops"


def _normalized(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float, rms: bool) -> Tensor:
    return _rms_norm(x, weight, epsilon, bias) if rms else _layer_norm(x, weight, bias, epsilon)


def _added(
    x: Tensor,
    residual: Tensor | None,
    dropout: float,
    rowscale: Tensor | None,
    layerscale: Tensor | None,
    in_float32: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum to normalise, the next residual (in the dtype of the given residual), and the dropout mask."""
    scaled = x if layerscale is None else x * layerscale
    scaled = scaled if rowscale is None else scaled * rowscale[..., None].to(scaled.dtype)
    mask = torch.empty_like(scaled).bernoulli_(1 - dropout) if dropout else torch.ones_like(scaled)
    kept = scaled * mask / (1 - dropout) if dropout else scaled
    dtype = residual.dtype if residual is not None else torch.float32 if in_float32 else kept.dtype
    total = kept.to(torch.promote_types(kept.dtype, torch.float32))
    total = total if residual is None else total + residual
    return total, total.to(dtype), mask


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
    exact, total, mask = _added(x0, residual, dropout_p, rowscale, layerscale, residual_in_fp32)
    normed = _normalized(exact, weight, bias, epsilon, rms).to(x0.dtype)
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


@counted(f"{_OPS}.layer_norm.layer_norm", "layer_norm")
def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    """LayerNorm(x)."""
    return _layer_norm(x, weight, bias, epsilon)


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
        """The normalised sum. With `prenorm` the sum is returned too."""
        p = self.p if self.training else 0.0
        given = x0, residual, self.weight, self.bias, p, self.eps
        return _dropout_add_norm(self._rms, *given, prenorm=self.prenorm, residual_in_fp32=self.residual_in_fp32)


@counted(f"{_OPS}.rms_norm.DropoutAddRMSNorm", "rms_norm")
class DropoutAddRMSNorm(DropoutAddLayerNorm):
    """RMSNorm(dropout(x) + residual) as a layer."""

    _rms = True


@counted(f"{_OPS}.rms_norm.RMSNorm", "rms_norm")
class RMSNorm(torch.nn.RMSNorm):
    """RMSNorm as a layer. With `zero_centered_weight`, 1 is added to the weights."""

    bias = None

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        dropout_p: float = 0.0,
        zero_centered_weight: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        self.zero_centered_weight = zero_centered_weight
        super().__init__(hidden_size, eps=eps, device=device, dtype=dtype)
        self.drop = torch.nn.Dropout(dropout_p) if dropout_p > 0.0 else None

    def reset_parameters(self) -> None:
        """Resets the weights to the identity."""
        torch.nn.init.constant_(self.weight, 0.0 if self.zero_centered_weight else 1.0)

    def forward(
        self, x: Tensor, residual: Tensor | None = None, prenorm: bool = False, residual_in_fp32: bool = False
    ) -> Any:
        """The normalised x, or sum of x and the residual. With `prenorm` the sum is returned too."""
        dropout = self.drop.p if self.drop is not None and self.training else 0.0
        weight = self.weight + 1.0 if self.zero_centered_weight else self.weight
        given = x, residual, weight, None, dropout, self.eps
        return _dropout_add_norm(True, *given, prenorm=prenorm, residual_in_fp32=residual_in_fp32)


def layer_norm_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None = None,
    x1: Tensor | None = None,
    weight1: Tensor | None = None,
    bias1: Tensor | None = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    zero_centered_weight: bool = False,
    is_rms_norm: bool = False,
    return_dropout_mask: bool = False,
    out_dtype: torch.dtype | None = None,
    out: Tensor | None = None,
    residual_out: Tensor | None = None,
) -> Any:
    """The normalised sum of x and the residual, under the name of the Triton kernel."""
    api = f"{_OPS}.triton.layer_norm.{'rms_norm_fn' if is_rms_norm else 'layer_norm_fn'}"
    second = {"x1": x1, "weight1": weight1, "bias1": bias1, "out": out, "residual_out": residual_out}
    refuse_arguments(api, "the stand-in normalises one input and returns new tensors", second)
    count(api, "rms_norm" if is_rms_norm else "layer_norm")
    weight = weight + 1.0 if zero_centered_weight else weight
    asked = {"prenorm": prenorm, "residual_in_fp32": residual_in_fp32, "return_dropout_mask": return_dropout_mask}
    given = x, residual, weight, bias, dropout_p, eps, rowscale
    result = _dropout_add_norm(is_rms_norm, *given, **asked)
    if out_dtype is None:
        return result
    return (result[0].to(out_dtype), *result[1:]) if isinstance(result, tuple) else result.to(out_dtype)


def rms_norm_fn(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None = None,
    x1: Tensor | None = None,
    weight1: Tensor | None = None,
    bias1: Tensor | None = None,
    eps: float = 1e-6,
    dropout_p: float = 0.0,
    rowscale: Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    zero_centered_weight: bool = False,
    return_dropout_mask: bool = False,
    out_dtype: torch.dtype | None = None,
    out: Tensor | None = None,
    residual_out: Tensor | None = None,
) -> Any:
    """The sum of x and the residual after RMSNorm, under the name of the Triton kernel."""
    inputs = x, weight, bias, residual, x1, weight1, bias1, eps, dropout_p, rowscale, prenorm, residual_in_fp32
    return layer_norm_fn(*inputs, zero_centered_weight, True, return_dropout_mask, out_dtype, out, residual_out)


@counted(f"{_OPS}.activations.swiglu", "silu")
def swiglu(x: Tensor, y: Tensor) -> Tensor:
    """silu(x) · y."""
    return F.silu(x) * y
