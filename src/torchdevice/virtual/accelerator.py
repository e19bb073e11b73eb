"""What torch.cuda and torch.xpu both ask of torch._C: devices, memory, streams, generators. The names differ by prefix.

Each function is an object of its own with a name: dynamo hashes them, tracebacks show them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from torchdevice.virtual import memory
from torchdevice.virtual.library import Library

Table = dict[str, Any]
DEVICE_TYPE = {"cuda": 1, "xpu": 12}  # c10::DeviceType


def nothing(*_: Any, **__: Any) -> None:
    """For calls whose effect has no meaning here."""


def constant(value: Any) -> Callable[..., Any]:
    def answer(*_: Any, **__: Any) -> Any:
        return value

    return answer


def devices(kind: str, lib: Library, count: int, properties: list[Any]) -> Table:

    def get_properties(index: int) -> Any:
        return properties[index]

    def set_device(index: int) -> None:
        lib.call("set_device", index)

    def exchange(index: int) -> int:
        former = lib.call("get_device")
        if index >= 0:
            lib.call("set_device", index)
        return former

    def maybe_exchange(index: int) -> int:
        return exchange(index)

    def init() -> None:
        getattr(torch, kind).default_generators = default_generators(kind, lib, count)

    return {
        f"_{kind}_init": init,
        f"_{kind}_getDeviceCount": constant(count),
        f"_{kind}_getDevice": lambda: lib.call("get_device"),
        f"_{kind}_setDevice": set_device,
        f"_{kind}_exchangeDevice": exchange,
        f"_{kind}_maybeExchangeDevice": maybe_exchange,
        f"_{kind}_isInBadFork": constant(False),  # a forked child can use the device: there is no driver to lose
        f"_{kind}_hasPrimaryContext": constant(True),
        f"_{kind}_canDeviceAccessPeer": constant(True),
        f"_{kind}_synchronize": nothing,
        f"_{kind}_sleep": nothing,
        f"_{kind}_ipc_collect": nothing,
        f"_{kind}_set_sync_debug_mode": nothing,
        f"_{kind}_get_sync_debug_mode": constant(0),
        f"_{kind}_getDeviceProperties": get_properties,
    }


def memory_functions(kind: str, lib: Library, count: int, capacity: int) -> Table:
    fractions = [1.0] * count
    address = {}

    def raw_alloc(size: int, stream: int) -> int:
        buffer = torch.empty(size, dtype=torch.uint8, device=kind)
        address[buffer.data_ptr()] = buffer
        return buffer.data_ptr()

    def raw_delete(pointer: int) -> None:
        address.pop(pointer, None)

    def reset_peak(device: int) -> None:
        lib.call("reset_peak", device)

    def reset_accumulated(device: int) -> None:
        lib.call("reset_accumulated", device)

    def set_fraction(fraction: float, device: int) -> None:
        fractions[device] = fraction
        lib.call("set_limit", device, int(capacity * fraction) if fraction < 1 else memory.limit_from_environment())

    def snapshot(*_: Any) -> Table:
        return {
            "segments": [],
            "device_traces": [[] for _ in range(count)],
            "allocator_settings": {},
            "external_annotations": [],
        }

    return {
        f"_{kind}_memoryStats": lambda device: memory.nested_stats(lib, device),
        f"_{kind}_resetPeakMemoryStats": reset_peak,
        f"_{kind}_resetAccumulatedMemoryStats": reset_accumulated,
        f"_{kind}_getMemoryInfo": lambda device: memory.free_and_total(lib, device, capacity),
        f"_{kind}_hostMemoryStats": constant({}),
        f"_{kind}_resetAccumulatedHostMemoryStats": nothing,
        f"_{kind}_resetPeakHostMemoryStats": nothing,
        f"_{kind}_emptyCache": nothing,
        f"_{kind}_setMemoryFraction": set_fraction,
        f"_{kind}_getMemoryFraction": lambda device: fractions[device],
        f"_{kind}_memorySnapshot": snapshot,
        f"_{kind}_record_memory_history": nothing,
        f"_{kind}_recordMemoryHistory": nothing,
        f"_{kind}_record_memory_history_legacy": nothing,
        f"_{kind}_isHistoryEnabled": constant(False),
        f"_{kind}_attach_out_of_memory_observer": nothing,
        f"_{kind}_setMemoryMetadata": nothing,
        f"_{kind}_getMemoryMetadata": constant(""),
        f"_{kind}_getAllocatorBackend": constant("native"),
        f"_{kind}_cudaCachingAllocator_raw_alloc": raw_alloc,
        f"_{kind}_cudaCachingAllocator_raw_delete": raw_delete,
        f"_{kind}_cudaCachingAllocator_is_enabled": constant(True),
        f"_{kind}_cudaCachingAllocator_enable": nothing,
        f"_{kind}_beginAllocateToPool": nothing,
        f"_{kind}_beginAllocateCurrentStreamToPool": nothing,
        f"_{kind}_beginAllocateCurrentThreadToPool": nothing,
        f"_{kind}_endAllocateToPool": nothing,
        f"_{kind}_releasePool": nothing,
        f"_{kind}_checkPoolLiveAllocations": constant(True),
        f"_{kind}_clearCublasWorkspaces": nothing,
        "_accelerator_setAllocatorSettings": nothing,
        "_host_emptyCache": nothing,
    }


def streams(kind: str, lib: Library) -> Table:
    number = DEVICE_TYPE[kind]

    def current(device: int) -> tuple[int, int, int]:
        device = lib.call("get_device") if device < 0 else device
        return lib.call("current_stream", device), device, number

    def default(device: int) -> tuple[int, int, int]:
        return 0, lib.call("get_device") if device < 0 else device, number

    def external(pointer: int, device: int) -> tuple[int, int, int]:
        return pointer, lib.call("get_device") if device < 0 else device, number

    def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
        lib.call("set_device", device_index)
        lib.call("set_stream", stream_id, device_index)

    pools = iter(range(1, 1 << 62))
    return {
        f"_{kind}_getCurrentStream": current,
        f"_{kind}_getDefaultStream": default,
        f"_{kind}_getStreamFromExternal": external,
        f"_{kind}_setStream": set_stream,
        f"_{kind}_getCurrentRawStream": lambda device: lib.call("current_stream", device),
        f"_{kind}_getCurrentBlasHandle": constant(0),
        f"_{kind}_getCurrentSolverHandle": constant(0),
        f"_{kind}_isCurrentStreamCapturing": lambda: bool(lib.call("capturing")),
        "_graph_pool_handle" if kind == "cuda" else "_xpu_graph_pool_handle": lambda: (0, next(pools)),
    }


def default_generators(kind: str, lib: Library, count: int) -> tuple[torch.Generator, ...]:
    """The generators that operators use when none is given, as Python objects."""
    lib.call("default_generators", 1)
    try:
        return tuple(torch.Generator(device=f"{kind}:{i}") for i in range(count))
    finally:
        lib.call("default_generators", 0)


class MemPoolBase:
    """Pools exist as names: every allocation is the allocator's."""

    _last = 0

    def __init__(self, allocator: Any = None, *_: Any, **__: Any) -> None:
        type(self)._last += 1
        self._pool_id, self._pool_allocator = (0, type(self)._last), allocator

    @property
    def id(self) -> tuple[int, int]:
        return self._pool_id

    @property
    def allocator(self) -> Any:
        return self._pool_allocator

    def use_count(self) -> int:
        return 1


def name_functions(table: Table) -> Table:
    """Each entry as a function of its own that carries its name, also where several share one body."""
    named = {}
    for name, f in table.items():
        named[name] = FunctionType(f.__code__, f.__globals__, name, f.__defaults__, f.__closure__)
        named[name].__kwdefaults__ = f.__kwdefaults__
    return named
