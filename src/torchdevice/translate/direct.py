"""Operators that are called by name (`torch.ops.aten.zeros([2], device="cuda")`) or from compiled code.

These calls do not go through a Python function that could be replaced. They all allocate memory with a few operators,
and the dispatcher selects the kernel of those by device type. For each device type that the host lacks, this module
registers a kernel that allocates on the device chosen by the policy. Calls for an available device do not reach these
kernels. In such calls no device and `cpu` mean the CPU. A type that computes for a virtual device counts as available:
its kernels allocate by the same operators. EXCEPTIONS lists the operators that compiled code refuses
before it allocates memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from torchdevice._torch import core, dispatcher
from torchdevice.policy.hosts import is_accelerator
from torchdevice.translate.translator import Translator

# Public operators that raise torch's own error for a missing device, with the reason. The functions of torch that call
# them (`x.to`, `torch.sparse_coo_tensor`) are translated.
_SPARSE = "the type of a sparse tensor includes its device and is chosen before memory is allocated"
EXCEPTIONS = {
    "to": "without an index, compiled code queries the current index of the missing device",
    "pin_memory": "the argument is the device for which the memory is pinned, and compiled code queries it",
    "sparse_coo_tensor": _SPARSE,
    "sparse_compressed_tensor": _SPARSE,
    "sparse_csr_tensor": _SPARSE,
    "sparse_csc_tensor": _SPARSE,
    "sparse_bsr_tensor": _SPARSE,
    "sparse_bsc_tensor": _SPARSE,
}
_PUBLIC = re.compile(r"aten::[^_]")
_BY_NAME = "BackendSelect"  # the key of operators that read their device from an argument


def makers() -> Iterator[str]:
    """The operators that allocate memory on a device. Each device type has its own kernel for them."""
    for name in dispatcher.kernels_under(_BY_NAME):
        composite = any(dispatcher.has_kernel(name, key) for key in dispatcher.COMPOSITES)
        if _PUBLIC.match(name) and dispatcher.has_kernel(name, "CPU") and not composite:
            yield name


def apply(translator: Translator, present: Collection[str]) -> Callable[[], None]:
    """Register kernels for the accelerator types that are not in `present`. Returns the undo."""
    registrations = dispatcher.Registrations()
    here = {*present, *core.virtual_types, *core.virtual_types.values(), "privateuseone"}
    absent = [key for kind, key in dispatcher.KEYS.items() if is_accelerator(kind) and kind not in here]
    for name in makers():
        kernel = _kernel(name, translator)
        for key in absent:
            registrations.add(name, key, kernel)
    return registrations.undo


def _kernel(name: str, translator: Translator) -> Callable[..., Any]:
    operator = dispatcher.find_operator(name)

    def make(*args: Any, **kwargs: Any) -> Any:
        asked = kwargs["device"]
        given = translator.translate(asked, name)
        if given is asked:  # translation is suspended in this thread
            raise NotImplementedError(f"Could not run '{name}' with arguments from the '{asked.type}' backend")
        return operator(*args, **{**kwargs, "device": given})

    return make
