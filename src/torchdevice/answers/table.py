"""One table per namespace with replacements for torch._C: functions, names that torch binds early, and base classes.

The rows come from the modules by topic and use the interface `Device`. `scoped` makes a table visible to user code
until `deactivate()`. `installed` installs it in torch until the process ends. A test reads torch's own sources and
fails for each name that they use and that is neither here nor in `LEFT_ALONE`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchdevice.answers import comm, devices, graphs, libraries, memory, mps, streams
from torchdevice.answers.device import Device, Table


@dataclass(frozen=True)
class Classes:
    """Names of a namespace's base classes in torch._C, and the attributes of streams and events that hold a handle.

    torch.mps has a separate event class, and neither graphs nor pools.
    """

    stream: str
    stream_handle: str = ""
    event: str = ""
    event_handle: str = ""
    graph: str = ""
    pool: str = ""
    properties: str = ""
    priorities: tuple[int, int] = (0, 0)  # of streams, the lowest first

    def names(self) -> frozenset[str]:
        """The names in torch._C."""
        return frozenset({self.stream, self.event, self.graph, self.pool, self.properties} - {""})


CLASSES = {
    "cuda": Classes(
        stream="_CudaStreamBase",
        stream_handle="cuda_stream",
        event="_CudaEventBase",
        event_handle="cuda_event",
        graph="_CUDAGraph",
        pool="_MemPool",
        properties="_CudaDeviceProperties",
        priorities=(0, -3),
    ),
    "xpu": Classes(
        stream="_XpuStreamBase",
        stream_handle="sycl_queue",
        event="_XpuEventBase",
        event_handle="sycl_event",
        graph="_XPUGraph",
        pool="_XPUMemPool",
        properties="_XpuDeviceProperties",
        priorities=(1, -1),
    ),
    "mps": Classes(stream="_MPSStreamBase"),
}

# Names that torch uses and that are not replaced, with the reason. `*` matches the rest of a name.
LEFT_ALONE = {
    # All except _accelerator_setAllocatorSettings, which `memory` replaces.
    "_accelerator_*": "torch calls the host's accelerator; without one, the public functions are replaced",
    "_CUDAGreenContext": "torch checks that it exists; green contexts split an NVIDIA GPU",
    "_cuda_CUDAAllocator": "torch checks that it exists; only a pluggable allocator makes objects of this class",
    "_xpu_XPUAllocator": "as _cuda_CUDAAllocator",
    "_mps_compileShader": "torch checks that it exists, and reports that Metal is missing",
    "_mps_loadMetallibFromPath": "as _mps_compileShader",
    "_mps_loadMetalllib": "as _mps_compileShader",
    "_mps_host_alias_storage": "memory that the CPU and Metal share by address; no other device has it",
    "_mps_is_on_macos_or_newer": "checks the operating system, and works in every build of torch",
}


@dataclass(frozen=True)
class Answers:
    """The replacements for one namespace.

    - `functions`: those of torch._C.
    - `names`: those in the namespace's modules that torch binds when it is imported.
    - `bases`: base classes, by the name of the class in torch.
    """

    functions: Table
    names: Table
    bases: dict[str, type]


def answers(kind: str, device: Device, noting: Callable[[str], Callable[[], None]] | None = None) -> Answers:
    """The table of one namespace, implemented by `device`.

    `noting(name)` returns the function that a class calls when user code makes an object of it.
    """
    note = noting if noting is not None else lambda name: lambda: None
    lent = streams.Streams(device, CLASSES[kind].priorities)
    if kind == "mps":
        stream = mps.mps_stream_base(streams.stream_base(lent, CLASSES[kind].stream_handle, note("Stream")))
        return Answers(mps.mps_functions(device, stream), {}, {"Stream": stream})
    functions = {
        **devices.device_functions(kind, device),
        **memory.memory_functions(kind, device),
        **streams.stream_functions(kind, lent),
        **graphs.graph_functions(kind, device),
    }
    names = {**devices.device_names(kind, functions), **devices.load_functions(device)}
    if kind == "cuda":
        functions |= {
            **libraries.library_functions(),
            **libraries.tunable_functions(),
            **comm.nccl_functions(),
            **comm.comm_functions(device),
        }
        names |= {"_cudart": libraries.cudart(device), "_nvtx": libraries.nvtx(), **libraries.green_context_names()}
    row = CLASSES[kind]
    graph = row.graph.removeprefix("_")
    bases: dict[str, Any] = {
        "Stream": streams.stream_base(lent, row.stream_handle, note("Stream")),
        "Event": streams.event_base(device, row.event_handle, note("Event")),
        graph: graphs.graph_base(graph, device, note(graph)),
        "MemPool": memory.pool_base(device, note("MemPool")),
    }
    return Answers(functions, names, bases)
