"""Rules for reductions, products, convolution, ordering, gathering, FFT and linear algebra: aten name → MLX expression.

Elementwise operators stand in `elementwise`. MLX has its decompositions on the CPU only: they say so themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from torchdevice.fallback.declined import Declined

Expression = Callable[..., Any]
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
    size = math.prod(x.shape[d] for d in dim)  # MLX divides by it, torch by what `norm` says
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
# The first tensor's dtype is the result's; the others are indices or masks.
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
