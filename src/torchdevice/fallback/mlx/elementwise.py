"""Rules for elementwise operators and activations: aten name → MLX expression. Algebra and reductions stand beside.

Each table says which dtypes its rules take; the executor declines the others. All tensors of a call have one dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx

Expression = Callable[..., Any]

# Floating point in, floating point out, the same function under another name.
FLOAT_UNARY: dict[str, Expression] = {
    **{name: getattr(mx, name) for name in ("ceil", "cos", "cosh", "erf", "erfinv", "exp", "expm1", "floor")},
    **{name: getattr(mx, name) for name in ("log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sigmoid", "sin")},
    **{name: getattr(mx, name) for name in ("sinh", "sqrt", "tan", "tanh")},
    "acos": mx.arccos,
    "acosh": mx.arccosh,
    "asin": mx.arcsin,
    "asinh": mx.arcsinh,
    "atan": mx.arctan,
    "atanh": mx.arctanh,
    "deg2rad": lambda x: x * (math.pi / 180),
    "erfc": lambda x: 1 - mx.erf(x),
    "exp2": lambda x: mx.power(2.0, x).astype(x.dtype),
    "frac": lambda x: x - mx.where(x < 0, mx.ceil(x), mx.floor(x)),
    "rad2deg": lambda x: x * (180 / math.pi),
    "round": mx.round,
    "sinc": lambda x: mx.where(x == 0, 1.0, mx.sin(math.pi * x) / (math.pi * x)).astype(x.dtype),
    "trunc": lambda x: mx.where(x < 0, mx.ceil(x), mx.floor(x)),
    # activations
    "relu": lambda x: mx.maximum(x, 0),
    "silu": lambda x: x * mx.sigmoid(x),
    "mish": lambda x: x * mx.tanh(mx.logaddexp(x, mx.zeros_like(x))),
    "hardsigmoid": lambda x: mx.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x: x * mx.clip(x / 6 + 0.5, 0, 1),
    "gelu": lambda x, approximate="none": _gelu(x, approximate),
    "leaky_relu": lambda x, slope=0.01: mx.where(x > 0, x, x * slope),
    "elu": lambda x, alpha=1.0, scale=1.0, inner=1.0: mx.where(x > 0, x * scale, mx.expm1(x * inner) * (alpha * scale)),
    "hardtanh": lambda x, low=-1.0, high=1.0: mx.clip(x, low, high),
    "softplus": lambda x, beta=1.0, threshold=20.0: mx.where(
        x * beta > threshold, x, mx.logaddexp(x * beta, mx.zeros_like(x)) / beta
    ),
    "softshrink": lambda x, lam=0.5: mx.where(x > lam, x - lam, mx.where(x < -lam, x + lam, mx.zeros_like(x))),
    "hardshrink": lambda x, lam=0.5: mx.where(mx.abs(x) <= lam, mx.zeros_like(x), x),
    "threshold": lambda x, limit, value: mx.where(x <= limit, mx.full(x.shape, value, x.dtype), x),
    "logit": lambda x, eps=None: _logit(x, eps),
    "nan_to_num": lambda x, nan=None, posinf=None, neginf=None: mx.nan_to_num(x, nan or 0.0, posinf, neginf),
    "pow.Tensor_Scalar": lambda x, exponent: mx.power(x, exponent).astype(x.dtype),
}
FLOAT_BINARY: dict[str, Expression] = {
    "atan2": mx.arctan2,
    "div.Tensor": mx.divide,
    "hypot": lambda x, y: mx.sqrt(x * x + y * y),
    "logaddexp": mx.logaddexp,
    "logaddexp2": lambda x, y: mx.logaddexp(x * math.log(2), y * math.log(2)) / math.log(2),
    "copysign.Tensor": lambda x, y: mx.where((y < 0) | ((y == 0) & (1 / y < 0)), -mx.abs(x), mx.abs(x)),
    "heaviside": lambda x, y: mx.where(x == 0, y, (x > 0).astype(x.dtype)),
    "fmax": lambda x, y: mx.where(mx.isnan(x), y, mx.where(mx.isnan(y), x, mx.maximum(x, y))),
    "fmin": lambda x, y: mx.where(mx.isnan(x), y, mx.where(mx.isnan(y), x, mx.minimum(x, y))),
    "pow.Tensor_Tensor": mx.power,
    "xlogy.Tensor": lambda x, y: mx.where(mx.isnan(y), y, mx.where(x == 0, mx.zeros_like(x), x * mx.log(y))),
    "lerp.Scalar": lambda x, end, weight: x + weight * (end - x),
    "lerp.Tensor": lambda x, end, weight: x + weight * (end - x),
    "addcmul": lambda x, a, b, value=1: x + value * a * b,
    "addcdiv": lambda x, a, b, value=1: x + value * a / b,
}
# Numbers of any kind but bool; integers stay integers.
NUMBER: dict[str, Expression] = {
    "abs": mx.abs,
    "neg": mx.negative,
    "sgn": mx.sign,
    "sign": mx.sign,
    "add.Tensor": lambda x, y, alpha=1: x + (y if alpha == 1 else y * alpha),
    "sub.Tensor": lambda x, y, alpha=1: x - (y if alpha == 1 else y * alpha),
    "rsub.Tensor": lambda x, y, alpha=1: y - (x if alpha == 1 else x * alpha),
    "mul.Tensor": mx.multiply,
    "maximum": mx.maximum,
    "minimum": mx.minimum,
    "clamp": lambda x, low=None, high=None: _same_kind(x, low, high) and mx.clip(x, low, high),
    "clamp_min": lambda x, low: _same_kind(x, low) and mx.maximum(x, low),
    "clamp_max": lambda x, high: _same_kind(x, high) and mx.minimum(x, high),
}
# Results are bool, whatever came in.
COMPARISON: dict[str, Expression] = {
    **{f"{ours}.Tensor": getattr(mx, theirs) for ours, theirs in (("eq", "equal"), ("ne", "not_equal"))},
    **{f"{ours}.Tensor": getattr(mx, theirs) for ours, theirs in (("lt", "less"), ("le", "less_equal"))},
    **{f"{ours}.Tensor": getattr(mx, theirs) for ours, theirs in (("gt", "greater"), ("ge", "greater_equal"))},
    **{f"{ours}.Scalar": getattr(mx, theirs) for ours, theirs in (("eq", "equal"), ("ne", "not_equal"))},
    **{f"{ours}.Scalar": getattr(mx, theirs) for ours, theirs in (("lt", "less"), ("le", "less_equal"))},
    **{f"{ours}.Scalar": getattr(mx, theirs) for ours, theirs in (("gt", "greater"), ("ge", "greater_equal"))},
    "isinf": mx.isinf,
    "isnan": mx.isnan,
    "isneginf": mx.isneginf,
    "isposinf": mx.isposinf,
    "logical_and": mx.logical_and,
    "logical_not": mx.logical_not,
    "logical_or": mx.logical_or,
    "logical_xor": lambda x, y: x.astype(mx.bool_) != y.astype(mx.bool_),
    "signbit": lambda x: (x < 0) | ((x == 0) & (1 / x.astype(mx.float32) < 0)),
}
INTEGER: dict[str, Expression] = {
    "bitwise_and.Tensor": mx.bitwise_and,
    "bitwise_or.Tensor": mx.bitwise_or,
    "bitwise_xor.Tensor": mx.bitwise_xor,
    "bitwise_not": lambda x: mx.logical_not(x) if x.dtype == mx.bool_ else mx.bitwise_invert(x),
}


def _gelu(x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1 + mx.erf(x / math.sqrt(2)))


def _logit(x: Any, eps: float | None) -> Any:
    x = x if eps is None else mx.clip(x, eps, 1 - eps)
    return mx.log(x / (1 - x))


def _same_kind(x: Any, *bounds: Any) -> bool:
    """Bounds that would change the dtype (a float for integers) are not ours to promote."""
    from torchdevice.fallback.declined import Declined

    if not mx.issubdtype(x.dtype, mx.floating) and any(isinstance(bound, float) for bound in bounds):
        raise Declined("bounds of another kind than the tensor")
    return True
