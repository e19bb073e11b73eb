"""Operators that CUDA's autocast computes in float32, under float16 on a CPU, where torch leaves them in float16.

float16 is what `autocast("cuda")` means without a dtype, and its largest number is 65504: sums, powers and exponentials
of activations would overflow. bfloat16 does not, and keeps the CPU's own lists. The kernels act only while autocast is
on for the CPU; normalisations are `norms`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchdevice import compat_dispatcher
from torchdevice.compat import RealTensor

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
    own = set(compat_dispatcher.kernels_under("AutocastCPU"))
    known = compat_dispatcher.kernels_under("AutocastCUDA")
    wide = WIDE | SPELLED
    return [name for name in known if name not in own and name.partition("::")[2].partition(".")[0] in wide]


def _in_float32(operator: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with compat_dispatcher.below_cpu_autocast():
            # A dtype that was asked for is the answer's, whatever autocast would choose.
            if halves() and not any(isinstance(value, torch.dtype) for value in (*args, *kwargs.values())):
                args = tuple(value.float() if _is_half(value) else value for value in args)
            return operator(*args, **kwargs)

    return kernel


def _is_half(value: Any) -> bool:
    return isinstance(value, RealTensor) and value.dtype is torch.float16


def install() -> Callable[[], None]:
    """Register the kernels; the returned function takes them away."""
    kernels = compat_dispatcher.Registrations()
    for name in overloads():
        kernels.add(name, "AutocastCPU", _in_float32(compat_dispatcher.find_operator(name)))
    return kernels.undo
