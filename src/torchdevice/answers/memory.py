"""Memory as CUDA's and SYCL's C functions tell of it: statistics, limits, pools. Counting is accounting.py."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from torchdevice._torch.core import RealDevice
from torchdevice.answers.devices import Table, constant, nothing
from torchdevice.answers.real import Native, Target

_ZERO = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
_OF_TENSORS = ("allocated_bytes", "active_bytes", "requested_bytes")
_OF_POOLS = ("reserved_bytes",)
_UNKNOWN = ("allocation", "segment", "active", "inactive_split", "inactive_split_bytes")


def nested_stats(target: Target, index: int, removed: list[int]) -> dict[str, Any]:
    """What `torch._C._cuda_memoryStats` returns. `removed`: accumulated figures at their last reset."""
    if isinstance(target, Native):
        return target.stats(index)
    allocated = target.allocated(index)
    reserved = max(allocated, target.reserved(index))
    peak = target.peak(index)
    most, most_reserved = peak.allocated(allocated), peak.reserved(reserved)
    figures = {**dict.fromkeys(_OF_TENSORS, (allocated, most)), **dict.fromkeys(_OF_POOLS, (reserved, most_reserved))}
    stats: dict[str, Any] = {}
    for name in (*_OF_TENSORS, *_OF_POOLS, *_UNKNOWN):
        now, highest = figures.get(name, (0, 0))
        # What was allocated and freed in total is known only as far as the peak tells it.
        total = max(0, highest - removed[index])
        values = {"current": now, "peak": max(now, highest), "allocated": max(now, total), "freed": max(0, total - now)}
        stats[name] = {"all": values, "small_pool": dict(_ZERO), "large_pool": dict(values)}
    stats.update(oversize_allocations=dict(_ZERO), oversize_segments=dict(_ZERO))
    stats.update(num_alloc_retries=0, num_ooms=target.ooms, max_split_size=-1, num_sync_all_streams=0)
    stats.update(num_device_alloc=0, num_device_free=0)
    return stats


def memory_functions(kind: str, target: Target) -> Table:
    """The C functions on memory. Pools and the history of allocations are names: the target's allocator decides."""
    removed = [0] * target.count
    blocks: dict[int, torch.Tensor] = {}
    enabled = [True]
    metadata = [""]

    def stats(index: int) -> dict[str, Any]:
        return nested_stats(target, index, removed)

    def reset_peak(index: int) -> None:
        target.peak(index).reset(target.allocated(index))

    def reset_accumulated(index: int) -> None:
        removed[index] = target.peak(index).allocated(target.allocated(index))

    def raw_alloc(size: int, stream: int) -> int:
        block = torch.empty(size, dtype=torch.uint8, device=RealDevice(target.type))
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
            "device_traces": [[] for _ in range(target.count)],
            "allocator_settings": {},
            "external_annotations": [],
        }

    return {
        f"_{kind}_memoryStats": stats,
        f"_{kind}_resetPeakMemoryStats": reset_peak,
        f"_{kind}_resetAccumulatedMemoryStats": reset_accumulated,
        f"_{kind}_getMemoryInfo": target.free_and_total,
        f"_{kind}_hostMemoryStats": constant({}),
        f"_{kind}_resetAccumulatedHostMemoryStats": nothing,
        f"_{kind}_resetPeakHostMemoryStats": nothing,
        f"_{kind}_emptyCache": lambda *_: target.empty_cache(),
        f"_{kind}_setMemoryFraction": target.set_fraction,
        f"_{kind}_getMemoryFraction": target.fraction,
        f"_{kind}_memorySnapshot": snapshot,
        f"_{kind}_record_memory_history": nothing,
        f"_{kind}_recordMemoryHistory": nothing,
        f"_{kind}_record_memory_history_legacy": nothing,
        f"_{kind}_isHistoryEnabled": constant(False),
        f"_{kind}_allocationTraceback": nothing,
        f"_{kind}_attach_out_of_memory_observer": nothing,
        f"_{kind}_setMemoryMetadata": set_metadata,
        f"_{kind}_getMemoryMetadata": lambda: metadata[0],
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
        f"_{kind}_clearCublasWorkspaces": nothing,
        "_accelerator_setAllocatorSettings": nothing,
        "_host_emptyCache": nothing,
    }


class MemPoolBase:
    """Pools are names: the target's allocator serves every allocation."""

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
