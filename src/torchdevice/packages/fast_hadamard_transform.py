"""fast_hadamard_transform: products with Hadamard's matrix by sums and differences."""

from __future__ import annotations

import torch
from torch import Tensor

from torchdevice.packages.counting import counted


@counted("fast_hadamard_transform.hadamard_transform", "sums and differences")
def hadamard_transform(x: Tensor, scale: float = 1.0) -> Tensor:
    """Product of each row with Hadamard's matrix and `scale`. Rows are zero-padded to a power of two."""
    width = x.shape[-1]
    size = 1 << (width - 1).bit_length()
    out = torch.nn.functional.pad(x, (0, size - width)).to(torch.promote_types(x.dtype, torch.float32))
    reach = 1
    while reach < size:
        first, second = out.unflatten(-1, (-1, 2, reach)).unbind(-2)
        out = torch.stack((first + second, first - second), dim=-2).flatten(-3)
        reach *= 2
    return (out[..., :width] * scale).to(x.dtype)
