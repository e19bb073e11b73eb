"""What torch asks about memory: statistics, limits, pools. Who counts is the device's business."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from torchdevice._torch.core import RealDevice
from torchdevice.answers.device import Device, Table, constant, nothing, refusal

_NO_ALLOCATOR = "the device's own allocator serves every tensor, and no other can take its place"


def memory_functions(kind: str, device: Device) -> Table:
    """The C functions on memory. Pools and the history of allocations are names: the device's allocator decides."""
    blocks: dict[int, torch.Tensor] = {}
    enabled = [True]
    metadata = [""]

    def raw_alloc(size: int, stream: int) -> int:
        block = torch.empty(size, dtype=torch.uint8, device=RealDevice(device.type))
        blocks[block.data_ptr()] = block
        return block.data_ptr()

    def raw_delete(pointer: int) -> None:
        blocks.pop(pointer, None)

    def enable(value: bool) -> None:
        enabled[0] = value

    def set_metadata(text: str) -> None:
        metadata[0] = text

    def snapshot(*_: Any, **__: Any) -> Table:
        return {
            "segments": [],
            "device_traces": [[] for _ in range(device.count)],
            "allocator_settings": {},
            "external_annotations": [],
        }

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
        f"_{kind}_memorySnapshot": snapshot,
        f"_{kind}_record_memory_history": nothing,
        f"_{kind}_recordMemoryHistory": nothing,
        f"_{kind}_record_memory_history_legacy": nothing,
        f"_{kind}_isHistoryEnabled": constant(False),
        f"_{kind}_allocationTraceback": nothing,
        f"_{kind}_attach_out_of_memory_observer": nothing,
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
