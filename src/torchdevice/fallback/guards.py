"""Operators whose kernel on the target refuses some dtypes or sizes: the rows, and what counts as such a refusal.

A guard asks the native kernel first. It costs a few microseconds a call, so only these rows have one; a test compares
them with torch's own lists. `torchdevice.fallback.guard("aten::…")` adds to them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from torchdevice.compat import RealTensor, torch_release

# From torch/testing/_internal/common_mps.py (dtypes), and from the size checks of the MPS pooling kernels.
GUARDED: dict[str, tuple[str, ...]] = {
    "mps": (
        *("_convolution", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "adaptive_max_pool1d"),
        *("adaptive_max_pool2d", "adaptive_max_pool2d_backward", "avg_pool2d", "avg_pool3d", "bincount", "huber_loss"),
        *("max_pool1d", "max_pool2d_with_indices_backward", "max_unpool2d", "max_unpool3d", "median"),
        *("median.dim_values", "nanmedian", "nanmedian.dim_values", "nll_loss", "softplus", "stft", "stft.center"),
        *("glu", "mish", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
        # torch computes these in float64, whatever they are given
        *("float_power.Tensor_Tensor", "float_power.Tensor_Scalar", "float_power.Scalar"),
    )
}
# Refuse dtypes too, but are called at every step of every model, with dtypes that work: not worth a guard.
EXEMPT = frozenset({"batch_norm", "linear", "max_pool2d", "max_pool3d", "native_batch_norm", "relu", "relu_", "silu"})

# Sizes for which a kernel is known to give wrong values and says nothing: it is not asked. By target and operator, with
# the torch that is right again. https://github.com/pytorch/pytorch/issues/190064
_SILENT = {("mps", "adaptive_max_pool2d"): (2, 14), ("mps", "adaptive_max_pool2d_backward"): (2, 14)}
_UNEVEN = "the kernel of this torch is wrong for sizes that do not divide"

# What a target says when it cannot, as opposed to when the caller is wrong. The first group depends on dtypes alone.
_DTYPE_REFUSALS = re.compile(
    r"is not currently implemented for the \w+ device|^Could not run 'aten::"
    r"|not implemented for '\w+'|doesn't support float64|to the MPS backend but it does not have support for that dtype"
    r"|is only supported on MPS for float types|not supported for (integer|integral|bool|complex|float16|bfloat16)"
    r"|[Uu]nsupported (data ?type|dtype).* MPS|MPS(: | does not |.*doesn't )support\w* .*(dtype|type)"
)
_SIZE_REFUSALS = re.compile(
    r"Adaptive pool MPS: ((in|out)put sizes must be divisible|Input height and width must both)"
    r"|not (yet )?(supported|implemented) on MPS"
    r"|MPS: .*(not supported|unsupported)|is not supported on the MPS device"
)
# Only these are asked for their text. MemoryError, OutOfMemoryError, ValueError and IndexError are never refusals.
_TYPES = (NotImplementedError, RuntimeError, TypeError)


def refusal_of(error: Exception) -> str | None:
    """`"dtype"`, `"size"`, or None: the error is the operator's own and goes to the caller."""
    if type(error) not in _TYPES:
        return None
    text = str(error)
    if _DTYPE_REFUSALS.search(text):
        return "dtype"
    return "size" if _SIZE_REFUSALS.search(text) else None


def silently_wrong(target: str, name: str) -> Callable[[tuple[Any, ...]], bool] | None:
    """What tells whether arguments get wrong values from the target's kernel in this torch; None: it is right."""
    right_from = _SILENT.get((target, name))
    return _pools_unevenly if right_from is not None and torch_release() < right_from else None


def _pools_unevenly(args: tuple[Any, ...]) -> bool:
    """Of (input, output size) or (gradient, input, indices)."""
    first, second = args[0], args[1]
    inner, outer = (second.shape, first.shape) if isinstance(second, RealTensor) else (first.shape, second)
    pairs = zip(tuple(inner)[-2:], tuple(outer)[-2:], strict=False)
    return any(a > 0 and b > 0 and max(a, b) % min(a, b) for a, b in pairs)


def make_guard(
    native: Any,
    elsewhere: Callable[[str, tuple[Any, ...], dict[str, Any]], Any],
    wrong: Callable[[tuple[Any, ...]], bool] | None = None,
) -> Callable[..., Any]:
    """A kernel that asks `native` first and remembers what it refused: by dtypes, or by dtypes and sizes."""
    by_dtype: dict[tuple[Any, ...], str] = {}
    by_size: dict[tuple[Any, ...], str] = {}
    lock = threading.Lock()
    call = native.call_boxed

    def guard(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if wrong is not None and wrong(args):
            return elsewhere(_UNEVEN, args, kwargs)
        if by_dtype or by_size:
            known = by_dtype.get(_dtypes(args)) or by_size.get(_sizes(args))
            if known is not None:
                return elsewhere(known, args, kwargs)
        try:
            return call(keys, *args, **kwargs)
        except _TYPES as error:
            kind = refusal_of(error)
            if kind is None:
                raise
            reason = str(error).splitlines()[0].split(". ")[0]
        with lock:
            if kind == "dtype":
                by_dtype[_dtypes(args)] = reason
            else:
                by_size[_sizes(args)] = reason
        return elsewhere(reason, args, kwargs)

    return guard


def _dtypes(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.dtype for value in args if isinstance(value, RealTensor))


def _sizes(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Everything that a size check can look at; lists become tuples, so that it can be a key."""
    return tuple((value.dtype, tuple(value.shape)) if isinstance(value, RealTensor) else str(value) for value in args)
