"""One table of what a namespace asks of torch._C: functions, names that torch binds early, and base classes.

The rows come from the topic files and are written against the protocol `Device`. `scoped` exposes a table to user code
until `deactivate()`; `installed` puts it into torch for the life of a process. A test reads torch's own sources and
fails for each name that they ask for and that is neither here nor in `LEFT_ALONE`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchdevice.answers import comm, devices, graphs, libraries, memory, mps, streams
from torchdevice.answers.device import Device, Table


@dataclass(frozen=True)
class Classes:
    """Names in torch._C of the bases of a namespace's classes; attributes of streams and events with a handle.

    torch.mps has its own kind of events, and neither graphs nor pools.
    """

    stream: str
    stream_handle: str = ""
    event: str = ""
    event_handle: str = ""
    graph: str = ""
    pool: str = ""
    properties: str = ""

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
    ),
    "xpu": Classes(
        stream="_XpuStreamBase",
        stream_handle="sycl_queue",
        event="_XpuEventBase",
        event_handle="sycl_event",
        graph="_XPUGraph",
        pool="_XPUMemPool",
        properties="_XpuDeviceProperties",
    ),
    "mps": Classes(stream="_MPSStreamBase"),
}

# Names that torch asks for and that keep torch's own answer, with the reason. A star stands for the rest of a name.
LEFT_ALONE = {
    # All but _accelerator_setAllocatorSettings, which `memory` answers.
    "_accelerator_*": "torch asks the hooks of the accelerator that is there; without one the public functions answer",
    "_CUDAGreenContext": "torch looks whether it is there; green contexts split an NVIDIA GPU",
    "_cuda_CUDAAllocator": "torch looks whether it is there; a class that only a pluggable allocator makes",
    "_xpu_XPUAllocator": "as _cuda_CUDAAllocator",
    "_mps_compileShader": "torch looks whether it is there, and says that Metal is missing",
    "_mps_loadMetallibFromPath": "as _mps_compileShader",
    "_mps_loadMetalllib": "as _mps_compileShader",
    "_mps_host_alias_storage": "memory that the CPU and Metal share by address, which nothing else has",
    "_mps_is_on_macos_or_newer": "a question about the operating system, which torch answers in every build",
}


@dataclass(frozen=True)
class Answers:
    """What one namespace asks.

    `functions` of torch._C; `names` of the namespace's modules that torch binds when it is imported; `bases` of the
    namespace's classes, by the class's name in torch.
    """

    functions: Table
    names: Table
    bases: dict[str, type]


def answers(kind: str, device: Device, noting: Callable[[str], Callable[[], None]] | None = None) -> Answers:
    """The table of one namespace, answered by `device`.

    `noting(name)` gives what a class calls when user code makes an object of it.
    """
    note = noting if noting is not None else lambda name: lambda: None
    lent = streams.Streams(device)
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
        "MemPool": memory.pool_base(device),
    }
    return Answers(functions, names, bases)
