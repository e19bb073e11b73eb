"""The rules: aten name → MLX expression. Elementwise operators first, then algebra, ordering, FFT and linear algebra.

Each table gives the dtypes that its rules accept; the executor declines the others. All tensors of a call have one
dtype. MLX runs its matrix decompositions only on the CPU; those rules are marked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from torchdevice.fallback.plan import Declined

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
# Results are bool for every input dtype.
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
    from torchdevice.fallback.plan import Declined

    if eps is not None and eps > 0.5:
        raise Declined("bounds that cross: versions of torch differ in which one wins")
    x = x if eps is None else mx.clip(x, eps, 1 - eps)
    return mx.log(x / (1 - x))


def _same_kind(x: Any, *bounds: Any) -> bool:
    """Whether the bounds keep the dtype. Bounds that change it (a float for integers) are declined."""
    from torchdevice.fallback.plan import Declined

    if not mx.issubdtype(x.dtype, mx.floating) and any(isinstance(bound, float) for bound in bounds):
        raise Declined("bounds of another kind than the tensor")
    return True


_ON_CPU: dict[str, Any] = {"stream": mx.cpu}


def _dims(x: Any, dim: Any) -> Any:
    return None if dim is None or dim == [] else dim


def _scatter(x: Any, dim: int, index: Any, source: Any) -> Any:
    if index.shape != source.shape:
        raise Declined("a source that is larger than the index")
    return mx.put_along_axis(x, index, source, dim)


def _gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    if x.ndim == 0 or any(
        i > s for d, (i, s) in enumerate(zip(index.shape, x.shape, strict=True)) if d != dim % x.ndim
    ):
        raise Declined("scalars")
    cut = tuple(slice(None) if d == dim % x.ndim else slice(0, i) for d, i in enumerate(index.shape))
    return mx.take_along_axis(x[cut], index, dim)


def _variance(x: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    ddof = 1 if correction is None else correction
    axes = range(x.ndim) if dim in (None, []) else dim
    if x.ndim and math.prod(x.shape[axis] for axis in axes) - ddof <= 0:
        raise Declined("no degrees of freedom")
    return mx.var(x, _dims(x, dim), keepdim, ddof)


def _softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    if half_to_float or x.ndim == 0 or not x.size:
        raise Declined("a change of dtype, or nothing to sum")
    return mx.softmax(x, dim, precise=True)


def _log_softmax(x: Any, dim: int, half_to_float: bool = False) -> Any:
    if half_to_float or x.ndim == 0 or not x.size:
        raise Declined("a change of dtype, or nothing to sum")
    return x - mx.logsumexp(x, dim, keepdims=True)


def _layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    axes = list(range(x.ndim - len(shape), x.ndim))
    mean = mx.mean(x, axes, keepdims=True)
    scale = mx.rsqrt(mx.var(x, axes, keepdims=True) + eps)
    y = (x - mean) * scale
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, scale


def _vector_norm(x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if dtype is not None or order not in (1, 2) or not x.size:
        raise Declined("another order than 1 and 2")
    if order == 1:
        return mx.sum(mx.abs(x), _dims(x, dim), keepdim)
    return mx.sqrt(mx.sum(mx.square(x), _dims(x, dim), keepdim))


def _convolution(
    x: Any, w: Any, b: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int
) -> Any:
    if transposed or x.ndim not in (3, 4) or not x.size:
        raise Declined("transposed, or not one- or two-dimensional")
    if isinstance(padding, str) or len({len(stride), len(padding), len(dilation), x.ndim - 2}) != 1:
        raise Declined("padding by name, or one number for all dimensions")
    last, back = ((0, 2, 1), (0, 2, 1)) if x.ndim == 3 else ((0, 2, 3, 1), (0, 3, 1, 2))
    convolve: Any = mx.conv1d if x.ndim == 3 else mx.conv2d
    options = [v[0] if x.ndim == 3 else tuple(v) for v in (stride, padding, dilation)]
    y = mx.transpose(convolve(mx.transpose(x, last), mx.transpose(w, last), *options, groups), back)
    return y if b is None else y + mx.reshape(b, (1, -1) + (1,) * (x.ndim - 2))


def _topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if x.ndim == 0:
        raise Declined("scalars")
    order = mx.argsort(-x if largest else x, dim)
    index = mx.take(order, mx.arange(k), dim)
    return mx.take_along_axis(x, index, dim), index.astype(mx.int64)


def _sort(x: Any, dim: int = -1, descending: bool = False) -> Any:
    if x.ndim == 0 or descending:
        raise Declined("scalars and descending order, in which ties go the other way")
    index = mx.argsort(x, dim)
    return mx.take_along_axis(x, index, dim), index.astype(mx.int64)


def _extreme(best: Expression, x: Any, dim: Any, keepdim: bool) -> Any:
    if x.ndim == 0 or not x.size:
        raise Declined("scalars")
    if dim is None:
        index = best(mx.reshape(x, (-1,))).astype(mx.int64)
        return mx.reshape(index, (1,) * x.ndim) if keepdim else index
    return best(x, dim, keepdim).astype(mx.int64)


def _fft(transform: Expression, x: Any, dim: list[int], norm: int) -> Any:
    scale = {0: 1.0, 1: 1 / math.sqrt(math.prod(x.shape[d] for d in dim)), 2: 1 / math.prod(x.shape[d] for d in dim)}
    y = transform(x, axes=dim)
    return y if norm == 0 else y * scale[norm]


def _c2c(x: Any, dim: list[int], norm: int, forward: bool) -> Any:
    if not dim or not x.size:
        raise Declined("no dimension")
    if forward:
        return _fft(mx.fft.fftn, x, dim, norm)
    size = math.prod(x.shape[d] for d in dim)  # MLX divides by it, torch as `norm` specifies
    return mx.fft.ifftn(x, axes=dim) * {0: size, 1: math.sqrt(size), 2: 1}[norm]


def _r2c(x: Any, dim: list[int], norm: int, onesided: bool) -> Any:
    if not onesided or len(dim) != 1:
        raise Declined("two-sided, or several dimensions")
    return _fft(mx.fft.rfftn, x, dim, norm)


def _square(x: Any) -> None:
    if not x.size:
        raise Declined("empty matrices")


def _inverse(x: Any, check_errors: bool = False) -> Any:
    _square(x)
    return mx.linalg.inv(x, **_ON_CPU), mx.zeros(x.shape[:-2], mx.int32)


def _eigh(x: Any, uplo: str = "L", compute_v: bool = True) -> Any:
    _square(x)
    if not compute_v:
        raise Declined("values without vectors: an empty tensor comes with them")
    return mx.linalg.eigh(x, uplo.upper(), **_ON_CPU)


def _svd(x: Any, full_matrices: bool = False, compute_uv: bool = True, driver: Any = None) -> Any:
    _square(x)
    if not compute_uv or not full_matrices or driver is not None:
        raise Declined("MLX has the full decomposition only")
    return mx.linalg.svd(x, **_ON_CPU)


def _qr(x: Any, mode: str = "reduced") -> Any:
    _square(x)
    if mode != "reduced" or x.ndim != 2:
        raise Declined("MLX has the reduced form only")
    return mx.linalg.qr(x, **_ON_CPU)


REDUCTION: dict[str, Expression] = {
    "sum": lambda x: mx.sum(x),
    "sum.dim_IntList": lambda x, dim=None, keepdim=False: mx.sum(x, _dims(x, dim), keepdim),
    "mean": lambda x: mx.mean(x),
    "mean.dim": lambda x, dim=None, keepdim=False: mx.mean(x, _dims(x, dim), keepdim),
    "prod": lambda x: mx.prod(x),
    "prod.dim_int": lambda x, dim, keepdim=False: mx.prod(x, dim, keepdim),
    "amax": lambda x, dim=None, keepdim=False: mx.max(x, _dims(x, dim), keepdim),
    "amin": lambda x, dim=None, keepdim=False: mx.min(x, _dims(x, dim), keepdim),
    "max": lambda x: mx.max(x),
    "min": lambda x: mx.min(x),
    "logsumexp": lambda x, dim, keepdim=False: mx.logsumexp(x, dim, keepdim),
    "var.correction": _variance,
    "std.correction": lambda x, dim=None, correction=None, keepdim=False: mx.sqrt(
        _variance(x, dim, correction, keepdim)
    ),
    "cumsum": lambda x, dim: mx.cumsum(x, dim),
    "cumprod": lambda x, dim: mx.cumprod(x, dim),
    "logcumsumexp": lambda x, dim: mx.logcumsumexp(x, dim),
    "linalg_vector_norm": _vector_norm,
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "native_layer_norm": _layer_norm,
    "trace": lambda x: mx.trace(x),
}


def _scaled(beta: Any, c: Any, alpha: Any, product: Any) -> Any:
    if beta == 0:
        raise Declined("beta=0, where torch does not look at the first tensor")
    return beta * c + alpha * product


PRODUCT: dict[str, Expression] = {
    "mm": mx.matmul,
    "bmm": mx.matmul,
    "mv": mx.matmul,
    "dot": lambda x, y: mx.sum(x * y),
    "addmm": lambda c, a, b, beta=1, alpha=1: _scaled(beta, c, alpha, mx.matmul(a, b)),
    "baddbmm": lambda c, a, b, beta=1, alpha=1: _scaled(beta, c, alpha, mx.matmul(a, b)),
    "addbmm": lambda c, a, b, beta=1, alpha=1: _scaled(beta, c, alpha, mx.sum(mx.matmul(a, b), 0)),
    "addmv": lambda c, a, b, beta=1, alpha=1: _scaled(beta, c, alpha, mx.matmul(a, b)),
    "addr": lambda c, a, b, beta=1, alpha=1: _scaled(beta, c, alpha, mx.outer(a, b)),
    "convolution": _convolution,
}
ANY_DTYPE: dict[str, Expression] = {
    "all": lambda x: mx.all(x),
    "all.dim": lambda x, dim, keepdim=False: mx.all(x, dim, keepdim),
    "any": lambda x: mx.any(x),
    "any.dim": lambda x, dim, keepdim=False: mx.any(x, dim, keepdim),
    "flip": lambda x, dims: x[
        tuple(slice(None, None, -1) if d in {i % x.ndim for i in dims} else slice(None) for d in range(x.ndim))
    ],
    "roll": lambda x, shifts, dims=(): (
        mx.roll(x, shifts, dims or None) if dims else mx.reshape(mx.roll(mx.reshape(x, (-1,)), shifts[0]), x.shape)
    ),
    "tril": lambda x, diagonal=0: mx.tril(x, diagonal),
    "triu": lambda x, diagonal=0: mx.triu(x, diagonal),
    "cat": lambda tensors, dim=0: mx.concatenate(tensors, dim),
    "stack": lambda tensors, dim=0: mx.stack(tensors, dim),
    "repeat": lambda x, repeats: mx.tile(x, tuple(repeats)),
    "clone": lambda x: mx.array(x),
}
# The result has the dtype of the first tensor; the others are indices or masks.
INDEXED: dict[str, Expression] = {
    "gather": _gather,
    "scatter.src": _scatter,
    "index_select": lambda x, dim, index: mx.take(x, index, dim),
    "take": lambda x, index: mx.take(mx.reshape(x, (-1,)), index),
    "embedding": lambda weight, index, *rest: mx.take(weight, index, 0),
    "masked_fill.Scalar": lambda x, mask, value: mx.where(mask, mx.array(value, x.dtype), x),
    "where.self": lambda mask, x, y: mx.where(mask, x, y),
}
ORDER: dict[str, Expression] = {
    "topk": _topk,
    "sort": _sort,
    "argmax": lambda x, dim=None, keepdim=False: _extreme(mx.argmax, x, dim, keepdim),
    "argmin": lambda x, dim=None, keepdim=False: _extreme(mx.argmin, x, dim, keepdim),
    "max.dim": lambda x, dim, keepdim=False: (mx.max(x, dim, keepdim), _extreme(mx.argmax, x, dim, keepdim)),
    "min.dim": lambda x, dim, keepdim=False: (mx.min(x, dim, keepdim), _extreme(mx.argmin, x, dim, keepdim)),
}
FOURIER: dict[str, Expression] = {"_fft_c2c": _c2c, "_fft_r2c": _r2c}
DECOMPOSITION: dict[str, Expression] = {
    "linalg_inv_ex": _inverse,
    "_linalg_eigh": _eigh,
    "_linalg_svd": _svd,
    "linalg_qr": _qr,
    "linalg_cholesky_ex": lambda x, upper=False, check_errors=False: (
        mx.linalg.cholesky(x, upper, **_ON_CPU),
        mx.zeros(x.shape[:-2], mx.int32),
    ),
}
