"""transformer_engine.pytorch: its layers without float8, by torch.nn. Float8 needs NVIDIA hardware."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from torchdevice.errors import CudaOnlyError, explain_error
from torchdevice.packages.attention import WAYS, Options, attend, is_fused
from torchdevice.packages.counting import count, counted
from torchdevice.packages.norms import layer_norm, rms_norm
from torchdevice.packages.refusals import refuse_arguments

_PACKAGE = "transformer_engine.pytorch"
# Options that change the kernels but not the results; and neutral values of other options.
_HINTS = frozenset(
    [
        "attention_type",
        "checkpoint_core_attention",
        "cp_comm_type",
        "delay_wgrad_compute",
        "fast_zero_fill",
        "fuse_wgrad_accumulation",
        "get_rng_state_tracker",
        "layer_number",
        "max_seqlen_kv",
        "max_seqlen_q",
        "micro_batch_size",
        "name",
        "parallel_mode",
        "params_dtype",
        "rng_tracker_name",
        "save_original_input",
        "seq_length",
        "sequence_parallel",
        "symmetric_ar_type",
        "tp_group",
    ]
)
_NOTHING = {"tp_size": 1, "softmax_type": "vanilla", "core_attention_bias_type": "no_bias"}


def _check(name: str, options: dict[str, Any]) -> None:
    """Raises an error for unsupported options that would change a result: `return_bias`, `alibi_slopes`, …"""
    others = {
        option: value
        for option, value in options.items()
        if option not in _HINTS
        and not option.startswith("ub_")
        and not option.endswith("_sm_margin")
        # A tensor always counts as set, and cannot be compared.
        and (isinstance(value, Tensor) or _NOTHING.get(option) != value)
    }
    refuse_arguments(f"{_PACKAGE}.{name}", "the stand-in for transformer_engine does not support it", others)


def _normed(inp: Tensor, weight: Tensor, bias: Tensor | None, eps: float, zero_centered: bool) -> Tensor:
    weight = weight + 1 if zero_centered else weight
    return rms_norm(inp, weight, eps) if bias is None else layer_norm(inp, weight, bias, eps)


def _where(device: Any, dtype: Any) -> dict[str, Any]:
    return {"device": device, "dtype": dtype}


@counted(f"{_PACKAGE}.Linear", "torch.nn.Linear")
class Linear(nn.Linear):
    """A linear layer."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        params_dtype: Any = None,
        device: Any = "cuda",
        **options: Any,
    ) -> None:
        _check("Linear", options)
        super().__init__(in_features, out_features, bias=bias, **_where(device, params_dtype))

    def forward(self, inp: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The product. Hints about batches change no result and are ignored."""
        return super().forward(inp)


class _Norm(nn.Module):
    """A normalisation whose weights may be zero-centered."""

    def __init__(self, weight: Any, bias: Any, eps: float, zero_centered_gamma: bool) -> None:
        super().__init__()
        self.weight, self.bias, self.eps, self.zero_centered_gamma = weight, bias, eps, zero_centered_gamma
        if zero_centered_gamma:
            nn.init.zeros_(weight)

    def forward(self, inp: Tensor) -> Tensor:
        """The normalised input."""
        return _normed(inp, self.weight, self.bias, self.eps, self.zero_centered_gamma)


@counted(f"{_PACKAGE}.LayerNorm", "torch.nn.LayerNorm")
class LayerNorm(_Norm):
    """LayerNorm."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        zero_centered_gamma: bool = False,
        dtype: Any = None,
        device: Any = "cuda",
        **options: Any,
    ) -> None:
        _check("LayerNorm", options)
        made = nn.LayerNorm(normalized_shape, **_where(device, options.get("params_dtype", dtype)))
        super().__init__(made.weight, made.bias, eps, zero_centered_gamma)


@counted(f"{_PACKAGE}.RMSNorm", "torch.nn.RMSNorm")
class RMSNorm(_Norm):
    """RMSNorm."""

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        zero_centered_gamma: bool = False,
        dtype: Any = None,
        device: Any = "cuda",
        **options: Any,
    ) -> None:
        _check("RMSNorm", options)
        made = nn.RMSNorm(normalized_shape, **_where(device, options.get("params_dtype", dtype)))
        super().__init__(made.weight, None, eps, zero_centered_gamma)


class _NormFirst(nn.Module):
    """A layer that normalises its input first. The names of its weights are those of checkpoints."""

    def __init__(self, size: int, eps: float, kind: str, zero_centered_gamma: bool, device: Any, dtype: Any) -> None:
        super().__init__()
        if kind not in ("LayerNorm", "RMSNorm"):
            raise AssertionError("Unsupported normalization type!")
        norm = nn.LayerNorm if kind == "LayerNorm" else nn.RMSNorm
        made = norm(size, **_where(device, dtype))
        self.layer_norm_weight = made.weight
        self.layer_norm_bias = made.bias if kind == "LayerNorm" else None
        self.eps, self.zero_centered_gamma = eps, zero_centered_gamma
        if zero_centered_gamma:
            nn.init.zeros_(self.layer_norm_weight)

    def _normed(self, inp: Tensor) -> Tensor:
        return _normed(inp, self.layer_norm_weight, self.layer_norm_bias, self.eps, self.zero_centered_gamma)


@counted(f"{_PACKAGE}.LayerNormLinear", "torch.nn.LayerNorm and torch.nn.Linear")
class LayerNormLinear(_NormFirst):
    """A normalisation and a linear layer."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        eps: float = 1e-5,
        bias: bool = True,
        normalization: str = "LayerNorm",
        return_layernorm_output: bool = False,
        zero_centered_gamma: bool = False,
        params_dtype: Any = None,
        device: Any = "cuda",
        **options: Any,
    ) -> None:
        _check("LayerNormLinear", options)
        super().__init__(in_features, eps, normalization, zero_centered_gamma, device, params_dtype)
        made = nn.Linear(in_features, out_features, bias=bias, **_where(device, params_dtype))
        self.weight, self.bias = made.weight, made.bias
        self.return_layernorm_output = return_layernorm_output

    def forward(self, inp: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The product with the normalised input. Optionally also returns the normalised input."""
        normed = self._normed(inp)
        out = F.linear(normed, self.weight, self.bias)
        return (out, normed) if self.return_layernorm_output else out


def _gated(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def apply(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return activation(first) * second

    return apply


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": _gelu,
    "relu": F.relu,
    "silu": F.silu,
    "srelu": lambda x: F.relu(x).square(),
    "geglu": _gated(_gelu),
    "reglu": _gated(F.relu),
    "swiglu": _gated(F.silu),
}


@counted(f"{_PACKAGE}.LayerNormMLP", "torch.nn.LayerNorm and torch.nn.Linear")
class LayerNormMLP(_NormFirst):
    """A normalisation and two linear layers with an activation between them."""

    def __init__(
        self,
        hidden_size: int,
        ffn_hidden_size: int,
        eps: float = 1e-5,
        bias: bool = True,
        normalization: str = "LayerNorm",
        activation: str = "gelu",
        return_layernorm_output: bool = False,
        zero_centered_gamma: bool = False,
        params_dtype: Any = None,
        device: Any = "cuda",
        **options: Any,
    ) -> None:
        _check("LayerNormMLP", options)
        super().__init__(hidden_size, eps, normalization, zero_centered_gamma, device, params_dtype)
        inner = ffn_hidden_size * (2 if activation.endswith("glu") else 1)
        first = nn.Linear(hidden_size, inner, bias=bias, **_where(device, params_dtype))
        second = nn.Linear(ffn_hidden_size, hidden_size, bias=bias, **_where(device, params_dtype))
        self.fc1_weight, self.fc1_bias, self.fc2_weight, self.fc2_bias = (
            first.weight,
            first.bias,
            second.weight,
            second.bias,
        )
        self.activation, self.return_layernorm_output = activation, return_layernorm_output

    def forward(self, inp: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The result, and optionally the normalised input."""
        normed = self._normed(inp)
        inner = _ACTIVATIONS[self.activation](F.linear(normed, self.fc1_weight, self.fc1_bias))
        out = F.linear(inner, self.fc2_weight, self.fc2_bias)
        return (out, normed) if self.return_layernorm_output else out


class DotProductAttention(nn.Module):
    """Attention without projections: (length, batch, heads, width), or (batch, length, …) with `qkv_format="bshd"`."""

    def __init__(
        self,
        num_attention_heads: int,
        kv_channels: int | tuple[int, int],
        num_gqa_groups: int | None = None,
        attention_dropout: float = 0.1,
        qkv_format: str = "sbhd",
        attn_mask_type: str = "causal",
        window_size: tuple[int, int] | None = None,
        softmax_scale: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        _check("DotProductAttention", options)
        if qkv_format not in ("sbhd", "bshd"):
            raise NotImplementedError(f"the stand-in does not support qkv_format={qkv_format!r}")
        self.attention_dropout, self.qkv_format, self.attn_mask_type = attention_dropout, qkv_format, attn_mask_type
        self.window_size, self.softmax_scale = window_size, softmax_scale

    def forward(
        self,
        query_layer: Tensor,
        key_layer: Tensor,
        value_layer: Tensor,
        attention_mask: Tensor | None = None,
        qkv_format: str | None = None,
        attn_mask_type: str | None = None,
        window_size: tuple[int, int] | None = None,
        **options: Any,
    ) -> Tensor:
        """The result, with all heads in one axis. True in a mask hides a key."""
        _check("DotProductAttention", options)
        batch_first = (qkv_format or self.qkv_format) == "bshd"
        axes = (0, 2, 1, 3) if batch_first else (1, 2, 0, 3)
        query, key, value = (each.permute(axes) for each in (query_layer, key_layer, value_layer))
        kind = attn_mask_type or self.attn_mask_type
        left, right = (None if size < 0 else size for size in window_size or self.window_size or (-1, -1))
        if "causal" in kind:
            right = 0 if "bottom_right" in kind else query.shape[2] - key.shape[2]
        bias = None
        if attention_mask is not None and ("padding" in kind or kind == "arbitrary"):
            bias = torch.zeros_like(attention_mask, dtype=query.dtype).masked_fill(attention_mask, -torch.inf)
        dropout = self.attention_dropout if self.training else 0.0
        asked = Options(self.softmax_scale, left, right, bias=bias, dropout=dropout)
        count(f"{_PACKAGE}.DotProductAttention", WAYS[is_fused(asked)])
        out = attend(query, key, value, asked).out
        return out.permute((0, 2, 1, 3) if batch_first else (2, 0, 1, 3)).flatten(2)


def _refuse_float8(name: str) -> None:
    raise CudaOnlyError(
        explain_error(
            f"{name} was asked for float8",
            "float8 needs NVIDIA hardware, and the stand-in for transformer_engine does not support it",
            "run the program without float8: enabled=False",
        )
    )


def fp8_autocast(enabled: bool = True, **options: Any) -> Any:
    """A context for float8. It has no effect if float8 is disabled, and raises an error if it is enabled."""
    if enabled:
        _refuse_float8("fp8_autocast")
    return contextlib.nullcontext()


def fp8_model_init(enabled: bool = True, **options: Any) -> Any:
    """A context for weights in float8. It raises an error if float8 is enabled."""
    if enabled:
        _refuse_float8("fp8_model_init")
    return contextlib.nullcontext()


class _Recipe:
    """A recipe for float8. It only stores its arguments."""

    def __init__(self, **options: Any) -> None:
        vars(self).update(options)


class DelayedScaling(_Recipe):
    """A recipe with scales from previous steps."""


class MXFP8BlockScaling(_Recipe):
    """A recipe with one scale per block."""


class Format:
    """The formats of float8."""

    E4M3, E5M2, HYBRID = "E4M3", "E5M2", "HYBRID"
