"""autocast("cuda") on a CPU: operators that CUDA's autocast computes in float32 and the CPU's does not.

float16 is what `autocast("cuda")` means without a dtype. Its largest number is 65504, so sums, powers and exponentials
of activations would overflow. Normalisations with half-precision weights are refused by the CPU's kernels and work on
CUDA. The kernels here act only while autocast is on for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchdevice._torch import core, dispatcher
from torchdevice._torch.core import RealTensor

# Operator → where its weight is among the arguments. The input is first.
NORMS = {"layer_norm": 2, "group_norm": 2, "batch_norm": 1, "instance_norm": 1}
WIDE_NORMS = frozenset({"layer_norm", "group_norm"})  # these CUDA's autocast computes in float32
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
            if _refused(args, weight) or (widened and halves()):
                # Statistics are written in place by training: those stay the tensors that they are.
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
    """Run with running statistics in float32, and write what became of them back."""
    reduced = [position for position in statistics if _is_reduced(args[position])]
    wide = list(args)
    for position in reduced:
        wide[position] = args[position].float()
    result = operator(*wide)
    for position in reduced:
        args[position].copy_(wide[position])
    return result


def apply_to_norms() -> Callable[[], None]:
    """Register the kernels; the returned function takes them away."""
    kernels = dispatcher.Registrations()
    for name, weight in NORMS.items():
        kernel = _norm_in_float32(getattr(torch.ops.aten, name), weight, name in WIDE_NORMS)
        kernels.add(f"aten::{name}", "AutocastCPU", kernel)
    return kernels.undo


# What torch's own tests of autocast expect to compute in float32 on CUDA, and norms in other spellings.
_NAMES = (
    "acos asin cosh cosine_similarity cumprod cumsum dist erfinv exp expm1 log log10 log1p log2 log_softmax logsumexp "
    "norm pdist pow reciprocal renorm rms_norm rsqrt sinh softmax softplus sum tan"
)
WIDE = frozenset(_NAMES.split())
SPELLED = frozenset({"frobenius_norm", "linalg_matrix_norm", "linalg_vector_norm", "nuclear_norm"})
_dtype_of = torch.get_autocast_dtype  # torch's own: replaced while active


def halves() -> bool:
    """Whether autocast on the CPU computes in float16 at the moment."""
    return _dtype_of("cpu") is torch.float16


def overloads() -> list[str]:
    """The operators in question, with their overloads: those that CUDA's autocast knows and the CPU's does not."""
    own = set(dispatcher.kernels_under("AutocastCPU"))
    known = dispatcher.kernels_under("AutocastCUDA")
    wide = WIDE | SPELLED
    return [name for name in known if name not in own and name.partition("::")[2].partition(".")[0] in wide]


def _in_float32(operator: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with dispatcher.below_cpu_autocast():
            # A dtype that was asked for is the answer's, whatever autocast would choose.
            if halves() and not any(isinstance(value, torch.dtype) for value in (*args, *kwargs.values())):
                args = tuple(value.float() if _is_half(value) else value for value in args)
            return operator(*args, **kwargs)

    return kernel


def _is_half(value: Any) -> bool:
    return isinstance(value, RealTensor) and value.dtype is torch.float16


def apply() -> Callable[[], None]:
    """Register the kernels; the returned function takes them away."""
    kernels = dispatcher.Registrations()
    for name in overloads():
        kernels.add(name, "AutocastCPU", _in_float32(dispatcher.find_operator(name)))
    return kernels.undo
