"""Products of matrices with a dtype of their own for the result (`torch.mm(a, b, out_dtype=torch.float32)`).

torch has them for CUDA alone. Elsewhere they are the same product of arguments in that dtype.
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
    """Kernels for a backend that has none."""
    for name, product in WIDENED.items():
        if dispatcher.find_operator(name) is not None and not dispatcher.has_kernel(name, backend):
            kernels.add(name, backend, _widening(product))


def apply_to_cpu() -> Callable[[], None]:
    """The same for the CPU; the returned function takes them away."""
    kernels = dispatcher.Registrations()
    register(kernels, "CPU")
    return kernels.undo


def _widening(product: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **factors: Any) -> Any:
        *tensors, dtype = args
        return product(*(tensor_to(each, dtype) for each in tensors), **factors)

    return kernel
