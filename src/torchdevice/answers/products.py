"""Matrix products with a separate dtype for the result (`torch.mm(a, b, out_dtype=torch.float32)`).

torch implements them only for CUDA. On other devices, the arguments are converted to that dtype and then multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchdevice._torch import dispatcher
from torchdevice._torch.core import tensor_to

WIDENED = {
    "aten::mm.dtype": torch.ops.aten.mm.default,
    "aten::bmm.dtype": torch.ops.aten.bmm.default,
    "aten::addmm.dtype": torch.ops.aten.addmm.default,
    "aten::baddbmm.dtype": torch.ops.aten.baddbmm.default,
}


def register(kernels: dispatcher.Registrations, backend: str) -> None:
    """Register kernels for a backend that has none."""
    for name, product in WIDENED.items():
        if dispatcher.find_operator(name) is not None and not dispatcher.has_kernel(name, backend):
            kernels.add(name, backend, _widening(product))


def apply_to_cpu() -> Callable[[], None]:
    """Register kernels for the CPU. The returned function removes them."""
    kernels = dispatcher.Registrations()
    register(kernels, "CPU")
    return kernels.undo


def _widening(product: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **factors: Any) -> Any:
        *tensors, dtype = args
        return product(*(tensor_to(each, dtype) for each in tensors), **factors)

    return kernel
