"""autocast("cuda") on a CPU: operators that CUDA's autocast casts and the CPU's autocast does not.

CUDA's autocast computes sums, powers and exponentials in float32: the largest number of float16 is 65504, and NumPy has
no bfloat16. It multiplies matrices and vectors in the dtype of autocast. Operators that need a single dtype get the
widest dtype of their arguments. The CPU's kernels reject normalizations with half-precision weights, which work on
CUDA. The kernels here act only while autocast for the CPU replaces autocast for an accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchdevice._torch import core, dispatcher
from torchdevice._torch.core import RealTensor

# Operator → the position of its weight among the arguments. The input is at position 0.
NORMS = {"layer_norm": 2, "group_norm": 2, "batch_norm": 1, "instance_norm": 1}
WIDE_NORMS = frozenset({"layer_norm", "group_norm"})  # CUDA's autocast computes these in float32
_REDUCED = (torch.float16, torch.bfloat16)


def _refused(values: tuple[Any, ...], weight: int) -> bool:
    given = values[weight] if len(values) > weight else None
    if given is None or given.dtype not in _REDUCED:
        return False
    others = [value for value in values if isinstance(value, core.RealTensor) and value.is_floating_point()]
    return any(value.dtype is not given.dtype for value in others)


def _norm_in_float32(operator: Callable[..., Any], weight: int, widened: bool) -> Callable[..., Any]:
    def norm(*args: Any) -> Any:
        with dispatcher.below_cpu_autocast():
            if _refused(args, weight) or (widened and stands_for_accelerator()):
                # Training writes to the running statistics in place, so these tensors must not be replaced.
                statistics = range(weight + 2, weight + 4) if weight == 1 else ()
                args = tuple(
                    value.float() if position not in statistics and _is_reduced(value) else value
                    for position, value in enumerate(args)
                )
                return _with_statistics(operator, args, statistics)
            return operator(*args)

    return norm


def _is_reduced(value: Any) -> bool:
    return isinstance(value, core.RealTensor) and value.dtype in _REDUCED


def _with_statistics(operator: Callable[..., Any], args: tuple[Any, ...], statistics: Any) -> Any:
    """Run with running statistics in float32, then write them back."""
    reduced = [position for position in statistics if _is_reduced(args[position])]
    wide = list(args)
    for position in reduced:
        wide[position] = args[position].float()
    result = operator(*wide)
    for position in reduced:
        args[position].copy_(wide[position])
    return result


def apply_to_norms() -> Callable[[], None]:
    """Register the kernels for normalizations. The returned function removes them."""
    kernels = dispatcher.Registrations()
    for name, weight in NORMS.items():
        kernel = _norm_in_float32(getattr(torch.ops.aten, name), weight, name in WIDE_NORMS)
        kernels.add(f"aten::{name}", "AutocastCPU", kernel)
    return kernels.undo


# Operators that torch's own autocast tests expect in float32 on CUDA, and other names of norms.
_NAMES = (
    "acos asin cosh cosine_similarity cumprod cumsum dist erfinv exp expm1 log log10 log1p log2 log_softmax logsumexp "
    "norm pdist pow reciprocal renorm rms_norm rsqrt sinh softmax softplus sum tan"
)
WIDE = frozenset(_NAMES.split())
SPELLED = frozenset({"frobenius_norm", "linalg_matrix_norm", "linalg_vector_norm", "nuclear_norm"})
# Operators that they expect in the dtype of autocast and that the CPU computes in another dtype.
LOWER = frozenset({"addmv", "addr", "mv", "gru_cell", "lstm_cell", "rnn_relu_cell", "rnn_tanh_cell"})
# Operators that they expect in the widest dtype of their tensors and that the CPU rejects.
PROMOTED = frozenset({"bilinear", "cross", "dot", "index_put", "scatter_add", "tensordot", "vdot"})
_LISTS = ("cuda", "xpu")  # types whose autocast has these lists
_dtype_of, _is_on = torch.get_autocast_dtype, torch.is_autocast_enabled  # the originals: a session replaces the names


def stands_for_accelerator() -> bool:
    """Whether autocast for the CPU currently replaces that for an accelerator (`translate.adapters.autocast_enter`)."""
    return any(map(_is_on, _LISTS))


def _wide(values: list[RealTensor]) -> torch.dtype:
    return torch.float32


def _lower(values: list[RealTensor]) -> torch.dtype:
    return _dtype_of("cpu")


def _widest(values: list[RealTensor]) -> torch.dtype:
    kinds = {value.dtype for value in values}
    return kinds.pop() if len(kinds) == 1 else torch.float32


Rule = Callable[[list[RealTensor]], torch.dtype]
RULES: tuple[tuple[frozenset[str], Rule], ...] = (
    (WIDE | SPELLED, _wide),
    (LOWER, _lower),
    (PROMOTED, _widest),
)
_RULE_OF = {f"aten::{name}": rule for names, rule in RULES for name in names}


def lacking() -> Iterator[tuple[str, Rule]]:
    """The overloads in `RULES` that CUDA's autocast has and the CPU's autocast lacks."""
    own = set(dispatcher.kernels_under("AutocastCPU"))
    for name in dispatcher.kernels_under("AutocastCUDA"):
        rule = _RULE_OF.get(name.partition(".")[0])
        if rule is not None and name not in own:
            yield name, rule


def _casting(operator: Any, rule: Rule) -> Callable[..., Any]:
    composite = dispatcher.has_kernel(dispatcher.name_of(operator), "CompositeImplicitAutograd")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if composite and not stands_for_accelerator():
            return operator.decompose(*args, **kwargs)  # the CPU's autocast has rules for its parts
        with dispatcher.below_cpu_autocast():
            # A dtype argument takes precedence over autocast.
            if stands_for_accelerator() and not any(
                isinstance(value, torch.dtype) for value in (*args, *kwargs.values())
            ):
                tensors = list(_to_cast(args))
                if tensors:
                    args = _cast(args, rule(tensors))
            return operator(*args, **kwargs)

    return kernel


# Layers that cuDNN computes as a whole, in the dtype of autocast. The CPU's autocast has no rule for them, and oneDNN
# fails with a mixture of dtypes.
RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})


def _recurrent(operator: Any) -> Callable[..., Any]:
    """The layer in float32 on rounded tensors: not every CPU multiplies float16. The results have the lower dtype."""

    def layer(*args: Any) -> Any:
        if not stands_for_accelerator():
            return operator.decompose(*args)
        with dispatcher.below_cpu_autocast():
            dtype = _lower([])
            return _cast(operator(*_cast(_cast(args, dtype), torch.float32)), dtype)

    return layer


def _to_cast(value: Any) -> Iterator[RealTensor]:
    if isinstance(value, (tuple, list)):
        for each in value:
            yield from _to_cast(each)
    elif isinstance(value, RealTensor) and value.is_floating_point() and value.dtype is not torch.float64:
        yield value


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_cast(each, dtype) for each in value)
    return value.to(dtype) if next(_to_cast(value), None) is not None else value


def apply() -> Callable[[], None]:
    """Register the kernels of `RULES`. The returned function removes them."""
    kernels = dispatcher.Registrations()
    for name, rule in lacking():
        kernels.add(name, "AutocastCPU", _casting(dispatcher.find_operator(name), rule))
    for name in RECURRENT:
        layer = getattr(torch.ops.aten, name)
        for overload in layer.overloads():
            kernels.add(f"aten::{name}.{overload}", "AutocastCPU", _recurrent(getattr(layer, overload)))
    return kernels.undo
