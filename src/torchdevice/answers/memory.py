"""What torch asks about memory: statistics, limits, pools. Who counts is the device's business."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from torchdevice._torch.core import RealDevice
from torchdevice.answers.device import Device, HistorySettings, Table, constant, nothing, refusal

_NO_ALLOCATOR = "the device's own allocator serves every tensor, and no other can take its place"


def memory_functions(kind: str, device: Device) -> Table:
    """The C functions on memory. Pools and the history of allocations are names: the device's allocator decides."""
    blocks: dict[int, torch.Tensor] = {}
    enabled = [True]
    metadata = [""]

    def raw_alloc(size: int, stream: int) -> int:
        counted = RealDevice(device.type if enabled[0] else "cpu")  # without its cache the allocator counts nothing
        block = torch.empty(size, dtype=torch.uint8, device=counted)
        blocks[block.data_ptr()] = block
        return block.data_ptr()

    def raw_delete(pointer: int) -> None:
        blocks.pop(pointer, None)

    def enable(value: bool) -> None:
        enabled[0] = value

    def set_metadata(text: str) -> None:
        metadata[0] = text

    recording = [False]

    def record(
        enabled: str | None, context: str | None, stacks: str, entries: int, clear: bool = False, *_: Any
    ) -> None:
        wanted = context if enabled is not None else None
        set_history(HistorySettings(enabled == "all", wanted, stacks == "all", entries, clear or enabled is None))

    def record_in_the_old_way(
        enabled: bool,
        record_context: bool,
        entries: int,
        every_context: bool,
        with_cpp: bool,
        clear: bool = False,
        *_: Any,
    ) -> None:
        wanted = ("alloc" if every_context else "state") if record_context else None
        set_history(HistorySettings(enabled and entries > 1, wanted if enabled else None, with_cpp, entries, clear))

    def set_history(settings: HistorySettings) -> None:
        recording[0] = device.record_history(settings)

    def observe(observer: Any) -> None:
        device.observe_out_of_memory(observer)

    def traceback_of(address: int) -> list[Any] | None:
        found = [each.frames for each in device.history().held if each.address == address]
        return found[0] if found and found[0] else None

    return {
        f"_{kind}_memoryStats": lambda index: device.stats(index),
        f"_{kind}_resetPeakMemoryStats": lambda index: device.reset_peak(index),
        f"_{kind}_resetAccumulatedMemoryStats": lambda index: device.reset_accumulated(index),
        f"_{kind}_getMemoryInfo": lambda index: device.free_and_total(index),
        f"_{kind}_hostMemoryStats": constant({}),
        f"_{kind}_resetAccumulatedHostMemoryStats": nothing,
        f"_{kind}_resetPeakHostMemoryStats": nothing,
        f"_{kind}_emptyCache": lambda *_: device.empty_cache(),
        f"_{kind}_setMemoryFraction": lambda fraction, index: device.set_fraction(fraction, index),
        f"_{kind}_getMemoryFraction": lambda index: device.fraction(index),
        f"_{kind}_memorySnapshot": lambda *_: snapshot(device),
        f"_{kind}_record_memory_history": record,
        f"_{kind}_recordMemoryHistory": record,
        f"_{kind}_record_memory_history_legacy": record_in_the_old_way,
        f"_{kind}_isHistoryEnabled": lambda: recording[0],
        f"_{kind}_allocationTraceback": traceback_of,
        f"_{kind}_attach_out_of_memory_observer": observe,
        f"_{kind}_setMemoryMetadata": set_metadata,
        f"_{kind}_getMemoryMetadata": lambda: metadata[0],
        f"_{kind}_memoryMetadataSupported": constant(False),
        f"_{kind}_annotateMemory": nothing,
        f"_{kind}_lock_mutex": nothing,
        f"_{kind}_unlock_mutex": nothing,
        f"_{kind}_cudaCachingAllocator_set_allocator_settings": nothing,
        f"_{kind}_getAllocatorBackend": constant("native"),
        f"_{kind}_cudaCachingAllocator_raw_alloc": raw_alloc,
        f"_{kind}_cudaCachingAllocator_raw_delete": raw_delete,
        f"_{kind}_cudaCachingAllocator_is_enabled": lambda: enabled[0],
        f"_{kind}_cudaCachingAllocator_enable": enable,
        f"_{kind}_beginAllocateToPool": nothing,
        f"_{kind}_beginAllocateCurrentStreamToPool": nothing,
        f"_{kind}_beginAllocateCurrentThreadToPool": nothing,
        f"_{kind}_endAllocateToPool": nothing,
        f"_{kind}_releasePool": nothing,
        f"_{kind}_checkPoolLiveAllocations": constant(True),
        f"_{kind}_clearCublasWorkspaces": nothing,
        **dict.fromkeys((f"_{kind}_resetCublasWorkspaceSize", f"_{kind}_resetCublasLtWorkspaceSize"), nothing),
        "_accelerator_setAllocatorSettings": nothing,
        "_host_emptyCache": nothing,
        **{
            name: refusal(name, _NO_ALLOCATOR)
            for name in (
                f"_{kind}_changeCurrentAllocator",
                f"_{kind}_customAllocator",
                f"_{kind}_getAllocator",
                f"_{kind}_cudaHostAllocator",
            )
        },
    }


_LARGE = 1 << 20  # bytes; above them torch's allocator takes memory from another pool


def snapshot(device: Device) -> Table:
    """What `torch._C._cuda_memorySnapshot` returns. Each allocation is a segment: nothing is cached."""
    found = device.history()
    traces: list[list[Table]] = [[] for _ in range(device.count)]
    for each in found.done:
        where = "device_free" if each.action == "oom" else "addr"
        traces[each.device].append(
            {
                "action": each.action,
                where: each.address,
                "size": each.size,
                "stream": each.stream,
                "time_us": each.microseconds,
                "compile_context": "N/A",
                "user_metadata": "",
                "frames": each.frames,
            }
        )
    segments = []
    for held in found.held:
        sizes = {"size": held.size, "requested_size": held.size}
        block = {"address": held.address, **sizes, "state": "active_allocated", "frames": held.frames}
        segments.append(
            {
                "device": held.device,
                "address": held.address,
                "total_size": held.size,
                "allocated_size": held.size,
                "active_size": held.size,
                "requested_size": held.size,
                "stream": held.stream,
                "segment_type": "large" if held.size > _LARGE else "small",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": held.frames,
                "blocks": [block],
            }
        )
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": {},
        "external_annotations": [],
    }


class MemPoolBase:
    """Pools are names: the device's allocator serves every allocation."""

    _numbers = itertools.count(1)

    def __init__(self, allocator: Any = None, *_: Any, **__: Any) -> None:
        self._pool_id, self._pool_allocator = (0, next(MemPoolBase._numbers)), allocator

    @property
    def id(self) -> tuple[int, int]:
        return self._pool_id

    @property
    def allocator(self) -> Any:
        return self._pool_allocator

    def use_count(self) -> int:
        return 1
