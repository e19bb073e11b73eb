"""The five operators that `torch.nn.SyncBatchNorm` calls. torch has them for CUDA and XPU; these run on every device.

torch's own autograd function calls them and does the communication.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchdevice._torch import dispatcher


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    """A vector over the channels (dimension 1) in a shape that broadcasts against the input."""
    return values.view(1, -1, *([1] * (like.dim() - 2)))


def _over(input: Tensor) -> list[int]:
    return [dimension for dimension in range(input.dim()) if dimension != 1]


def _wide(tensor: Tensor) -> Tensor:
    """Statistics of half-precision inputs are computed and stored in float32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and inverse standard deviation of each channel."""
    variance, mean = torch.var_mean(_wide(input), _over(input), correction=0)
    return mean, torch.rsqrt(variance + eps)


def gather_stats_with_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """The statistics over all parts, from each part's statistics and count. Updates the running statistics."""
    weights = counts.to(mean.dtype).view(-1, 1)
    total = weights.sum()
    whole = (mean * weights).sum(0) / total
    variance = ((invstd.pow(-2) - eps + (mean - whole).square()) * weights).sum(0) / total
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_((momentum * whole).to(running_mean.dtype))
    if running_var is not None:
        unbiased = variance * (total / (total - 1))
        running_var.mul_(1 - momentum).add_((momentum * unbiased).to(running_var.dtype))
    return whole, torch.rsqrt(variance + eps)


def elemt(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    """Normalise with given statistics."""
    normal = (_wide(input) - _per_channel(mean, input)) * _per_channel(invstd, input)
    if weight is not None:
        normal = normal * _per_channel(weight, input)
    if bias is not None:
        normal = normal + _per_channel(bias, input)
    return normal.to(input.dtype)


def backward_reduce(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """This part's sums for the gradient of the input, and the gradients of weight and bias."""
    gradient = _wide(grad_out)
    sum_dy = gradient.sum(_over(input))
    sum_dy_xmu = (gradient * (_wide(input) - _per_channel(mean, input))).sum(_over(input))
    kept = weight.dtype if weight is not None else sum_dy.dtype
    return (
        sum_dy,
        sum_dy_xmu,
        (sum_dy_xmu * invstd).to(kept) if weight_g else None,
        sum_dy.to(kept) if bias_g else None,
    )


def backward_elemt(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """The gradient of the input, from the sums over all parts."""
    total = count.sum().to(mean.dtype)
    scale = invstd if weight is None else invstd * weight
    centred = _wide(input) - _per_channel(mean, input)
    correction = centred * _per_channel(invstd.square() * sum_dy_xmu / total, input)
    gradient = (_wide(grad_out) - _per_channel(sum_dy / total, input) - correction) * _per_channel(scale, input)
    return gradient.to(input.dtype)


OPERATORS: dict[str, Callable[..., Any]] = {
    "aten::batch_norm_stats": stats,
    "aten::batch_norm_gather_stats_with_counts": gather_stats_with_counts,
    "aten::batch_norm_elemt": elemt,
    "aten::batch_norm_backward_reduce": backward_reduce,
    "aten::batch_norm_backward_elemt": backward_elemt,
}


def apply(kind: str) -> Callable[[], None]:
    """Register the operators for a device that lacks them. Returns the undo."""
    kernels = dispatcher.Registrations()
    for name, kernel in OPERATORS.items():
        if not dispatcher.has_kernel(name, kind.upper()):
            kernels.add(name, kind.upper(), kernel)
    return kernels.undo
