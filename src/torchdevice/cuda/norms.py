"""Half-precision weights of normalisations under autocast on the CPU, which refuses them.

CUDA's autocast runs these operators in float32, so a module in half precision meets float32 activations and works. The
CPU's autocast leaves them alone, and the CPU's kernels want parameters in float32. The kernels here act only while
autocast is on for the CPU: on the mixture that would raise, and under float16 as in `precision`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchdevice import compat, compat_dispatcher
from torchdevice.cuda.precision import halves

# Operator → where its weight is among the arguments. The input is first.
NORMS = {"layer_norm": 2, "group_norm": 2, "batch_norm": 1, "instance_norm": 1}
WIDE = frozenset({"layer_norm", "group_norm"})  # these CUDA's autocast computes in float32
_REDUCED = (torch.float16, torch.bfloat16)


def _refused(values: tuple[Any, ...], weight: int) -> bool:
    given = values[weight] if len(values) > weight else None
    if given is None or given.dtype not in _REDUCED:
        return False
    others = [value for value in values if isinstance(value, compat.RealTensor) and value.is_floating_point()]
    return any(value.dtype is not given.dtype for value in others)


def _in_float32(operator: Callable[..., Any], weight: int, widened: bool) -> Callable[..., Any]:
    def norm(*args: Any) -> Any:
        with compat_dispatcher.below_cpu_autocast():
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
    return isinstance(value, compat.RealTensor) and value.dtype in _REDUCED


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


def install() -> Callable[[], None]:
    """Register the kernels; the returned function takes them away."""
    kernels = compat_dispatcher.Registrations()
    for name, weight in NORMS.items():
        kernel = _in_float32(getattr(torch.ops.aten, name), weight, name in WIDE)
        kernels.add(f"aten::{name}", "AutocastCPU", kernel)
    return kernels.undo
