"""Private names in C of a torch build for a device, which virtual devices replace.

"Expiry" for all of them: a public way to add a device under one of torch's own device names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.storage import _StorageBase

from torchdevice._torch.imports import when_imported
from torchdevice._torch.samples import leaves_of

# The extension module. `answers` lists the names that a build for a device has.
NATIVE = torch._C
StorageBase = _StorageBase

# `torch.compile()` without a backend uses this class to compile a graph. The class calls `compile_fx` of this module.
Inductor = torch._TorchCompileInductorWrapper
INDUCTOR = "torch._inductor.compile_fx"
# The module whose function `cudagraphs` compiles a graph for `torch.compile(backend="cudagraphs")`.
CUDAGRAPHS = "torch._dynamo.backends.cudagraphs"
# The C function that `torch.set_default_tensor_type` calls.
set_default_tensor_type = torch._C._set_default_tensor_type


def replace_set_default_tensor_type(function: Callable[[Any], None]) -> None:
    """Make `torch.set_default_tensor_type` call another function."""
    torch._C._set_default_tensor_type = function


def values_of_graph(model: Any, inputs: Any) -> Iterator[Any]:
    """The inputs of a graph and the values that its nodes compute, as far as the tracer has recorded them."""
    yield from leaves_of(inputs)
    for node in model.graph.nodes if isinstance(model, torch.fx.GraphModule) else ():
        yield from leaves_of([node.args, node.kwargs])
        yield from leaves_of([node.meta.get(key) for key in ("example_value", "val")])


def compile_without_inductor(model: Any, inputs: Any) -> Any:
    """Trace a graph ahead of time and run it eagerly."""
    from torch._dynamo.backends.debugging import aot_eager

    return aot_eager(model, inputs)


def expect_no_compilers() -> None:
    """Silence torch's warning that Triton and CuTeDSL are missing. Expiry: torch 2.13, which logs it at level INFO."""
    logging.getLogger("torch._native").setLevel(logging.ERROR)


def fuse_nothing_on_gpus() -> None:
    """Keep TorchScript's fusers from loading NVRTC."""
    torch._C._jit_override_can_fuse_on_gpu(False)


def annotate_no_kernels() -> Callable[[], object]:
    """Tell torch that kernels in graphs cannot be annotated. Otherwise it would call a real driver."""

    def decide() -> None:
        import torch.cuda._graph_annotations as annotations

        annotations._tools_id_available = False

    return when_imported("torch.cuda._graph_annotations", "", decide)


def uses_cxx11_abi() -> bool:
    """Whether torch was built with the C++11 ABI for strings. A library that links against torch needs the same ABI."""
    return bool(torch._C._GLIBCXX_USE_CXX11_ABI)


def hash_tensors_with(function: Callable[[list[Any]], int]) -> None:
    """Set the function with which torch.distributed compares collectives (TORCH_DISTRIBUTED_DEBUG=DETAIL).

    torch's own function exists only in builds with NCCL.
    """
    torch._C._distributed_c10d._hash_tensors = function


def new_shared_memory(size: int) -> Any:
    """A CPU storage in shared memory."""
    return torch.UntypedStorage._new_using_filename_cpu(size)


def name_of(storage: Any) -> tuple[Any, ...]:
    """Under what this process finds a storage in shared memory, as long as it exists."""
    name: tuple[Any, ...] = storage._share_filename_cpu_()
    return name


def shared_memory_named(name: tuple[Any, ...]) -> Any:
    """The storage with that name."""
    return torch.UntypedStorage._new_shared_filename_cpu(*name)


def handle_of(storage: Any) -> tuple[Any, ...]:
    """The name by which another process finds a storage in shared memory.

    It counts as a reference, as in torch's own reductions: the sender may free its storage before the receiver opens
    the memory.
    """
    storage._shared_incref()
    return name_of(storage)


def shared_memory_at(handle: tuple[Any, ...]) -> Any:
    """The storage for a handle of another process. Each handle is opened once."""
    return shared_memory_named(handle)._shared_decref()


def share_between_processes(share: Any, attach: Any, release: Any) -> None:
    """Add CUDA's three functions for IPC handles to storages."""
    torch.UntypedStorage._share_cuda_ = share
    torch.UntypedStorage._new_shared_cuda = classmethod(attach)
    torch.UntypedStorage._release_ipc_counter_cuda = classmethod(release)


def send_storages_by(reduced: Callable[[Any], tuple[Any, ...] | None]) -> None:
    """Set the function that reduces a storage for multiprocessing. If it returns None, torch's own function is used."""
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing.reductions import reduce_storage

    def reduce(storage: Any) -> tuple[Any, ...]:
        found = reduced(storage)
        return reduce_storage(storage) if found is None else found

    ForkingPickler.register(torch.UntypedStorage, reduce)
