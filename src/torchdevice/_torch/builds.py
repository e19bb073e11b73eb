"""Private names that a build of torch for a device has in C, for virtual devices that stand in for such a build.

"Expiry" for all of them: a public way to add a device with a name of torch's own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch.storage import _StorageBase

from torchdevice._torch.imports import when_imported

# The extension module. Which of its names a build for a device has is data of `answers`.
NATIVE = torch._C
StorageBase = _StorageBase

# What `torch.compile()` without a backend calls to compile a graph.
Inductor = torch._TorchCompileInductorWrapper
# What `torch.set_default_tensor_type` ends in.
set_default_tensor_type = torch._C._set_default_tensor_type


def replace_set_default_tensor_type(function: Callable[[Any], None]) -> None:
    """Let `torch.set_default_tensor_type` end in another function."""
    torch._C._set_default_tensor_type = function


def compile_without_inductor(model: Any, inputs: Any) -> Any:
    """Trace a graph ahead of time and run it eagerly."""
    from torch._dynamo.backends.debugging import aot_eager

    return aot_eager(model, inputs)


def expect_no_compilers() -> None:
    """Let torch not warn that Triton and CuTeDSL are missing. Expiry: torch 2.13, which informs whoever asks."""
    logging.getLogger("torch._native").setLevel(logging.ERROR)


def fuse_nothing_on_gpus() -> None:
    """Keep TorchScript's fusers from looking for NVRTC."""
    torch._C._jit_override_can_fuse_on_gpu(False)


def annotate_no_kernels() -> Callable[[], object]:
    """Tell torch that kernels in graphs cannot be annotated, before it asks a real driver about a virtual device."""

    def decide() -> None:
        import torch.cuda._graph_annotations as annotations

        annotations._tools_id_available = False

    return when_imported("torch.cuda._graph_annotations", "", decide)


def uses_cxx11_abi() -> bool:
    """Which ABI of C++ strings torch was built with: a library that links against it needs the same."""
    return bool(torch._C._GLIBCXX_USE_CXX11_ABI)


def hash_tensors_with(function: Callable[[list[Any]], int]) -> None:
    """What torch.distributed compares collectives with (TORCH_DISTRIBUTED_DEBUG=DETAIL), which needs NCCL in C."""
    torch._C._distributed_c10d._hash_tensors = function


def new_shared_memory(size: int) -> Any:
    """A storage on the CPU in shared memory, and afterwards its handle by `handle_of`."""
    return torch.UntypedStorage._new_using_filename_cpu(size)


def handle_of(storage: Any) -> tuple[Any, ...]:
    """By which another process finds a storage in shared memory."""
    handle: tuple[Any, ...] = storage._share_filename_cpu_()
    return handle


def shared_memory_at(handle: tuple[Any, ...]) -> Any:
    """The storage behind a handle of another process."""
    return torch.UntypedStorage._new_shared_filename_cpu(*handle)


def share_between_processes(share: Any, attach: Any, release: Any) -> None:
    """Put CUDA's three functions on IPC handles into storages."""
    torch.UntypedStorage._share_cuda_ = share
    torch.UntypedStorage._new_shared_cuda = classmethod(attach)
    torch.UntypedStorage._release_ipc_counter_cuda = classmethod(release)


def send_storages_by(reduced: Callable[[Any], tuple[Any, ...] | None]) -> None:
    """What multiprocessing pickles a storage as; None leaves it to torch, which knows the CPU's and CUDA's."""
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing.reductions import reduce_storage

    def reduce(storage: Any) -> tuple[Any, ...]:
        found = reduced(storage)
        return reduce_storage(storage) if found is None else found

    ForkingPickler.register(torch.UntypedStorage, reduce)
