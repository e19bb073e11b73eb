"""Functions on memory: statistics, limits, pools. The device counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchdevice._torch.core import RealDevice
from torchdevice.answers.device import Device, HistorySettings, PoolId, Segment, Table, constant, nothing, refusal
from torchdevice.answers.real import Real

_NO_ALLOCATOR = "this device's own allocator cannot be replaced"


def memory_functions(kind: str, device: Device) -> Table:
    """Replacements for the C functions on memory."""
    blocks: dict[int, torch.Tensor] = {}
    enabled = [True]
    metadata = [""]

    def raw_alloc(size: int, stream: int) -> int:
        counted = RealDevice(device.type if enabled[0] else "cpu")  # a disabled caching allocator counts nothing
        block = torch.empty(size, dtype=torch.uint8, device=counted)
        blocks[block.data_ptr()] = block
        return block.data_ptr()

    def raw_delete(pointer: int) -> None:
        if blocks.pop(pointer, None) is None:
            device.free(pointer)

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

    def set_fraction(fraction: float, index: int) -> None:
        # torch.cuda checks the range in Python, torch.xpu in C++.
        if kind == "xpu" and not 0 < fraction <= 1:
            raise ValueError(f"invalid fraction:{fraction:g}. Please set within (0, 1].")
        device.set_fraction(fraction, index)

    def observe(observer: Any) -> None:
        device.observe_out_of_memory(observer)

    def traceback_of(address: int) -> list[Any] | None:
        blocks = (each for segment in device.history().held for each in segment.blocks)
        found = [each.frames for each in blocks if each.address == address]
        return found[0] if found and found[0] else None

    def segments_of(index: int, pool: PoolId) -> list[Segment]:
        return [each for each in device.history().held if (each.device, each.pool) == (index, tuple(pool))]

    def live(index: int, pool: PoolId) -> set[int]:
        blocks = (block for segment in segments_of(index, pool) for block in segment.blocks)
        return {block.address for block in blocks if block.state == "active_allocated"}

    def restore(index: int, state: PoolState, stale: Iterable[int], owners: Iterable[int]) -> None:
        """`stale`: storages that lose their memory. `owners`: storages that own their memory again."""
        for storage in stale:
            device.disown(storage)
        device.restore_pool(index, state.pool, state.segments)
        for storage in owners:
            device.own(storage)

    return {
        f"_{kind}_memoryStats": lambda index: device.stats(index),
        f"_{kind}_resetPeakMemoryStats": lambda index: device.reset_peak(index),
        f"_{kind}_resetAccumulatedMemoryStats": lambda index: device.reset_accumulated(index),
        f"_{kind}_getMemoryInfo": lambda index: device.free_and_total(index),
        f"_{kind}_hostMemoryStats": constant({}),
        f"_{kind}_resetAccumulatedHostMemoryStats": nothing,
        f"_{kind}_resetPeakHostMemoryStats": nothing,
        f"_{kind}_emptyCache": lambda *_: device.empty_cache(),
        f"_{kind}_setMemoryFraction": set_fraction,
        f"_{kind}_getMemoryFraction": lambda index: device.fraction(index),
        f"_{kind}_memorySnapshot": lambda asked=None: snapshot(device, asked),
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
        f"_{kind}_beginAllocateToPool": lambda index, pool: device.begin_pool(index, pool, of_stream=True),
        f"_{kind}_beginAllocateCurrentStreamToPool": lambda index, pool: device.begin_pool(index, pool, of_stream=True),
        f"_{kind}_beginAllocateCurrentThreadToPool": lambda index, pool: device.begin_pool(
            index, pool, of_stream=False
        ),
        f"_{kind}_endAllocateToPool": lambda index, pool: device.end_pool(index, pool),
        f"_{kind}_endAllocateCurrentStreamToPool": lambda index, pool: device.end_pool(index, pool),
        f"_{kind}_releasePool": lambda index, pool: device.drop_pool(index, pool),
        f"_{kind}_checkPoolLiveAllocations": lambda index, pool, expected: live(index, pool) == set(expected),
        f"_{kind}_getCheckpointState": lambda index, pool: PoolState(pool, segments_of(index, pool)),
        f"_{kind}_setCheckpointPoolState": restore,
        "_construct_storage_from_data_pointer": lambda address, place, size: device.storage_at(address, place, size),
        f"_{kind}_clearCublasWorkspaces": nothing,
        **dict.fromkeys((f"_{kind}_resetCublasWorkspaceSize", f"_{kind}_resetCublasLtWorkspaceSize"), nothing),
        "_accelerator_setAllocatorSettings": nothing,
        "_host_emptyCache": lambda *_: device.empty_pinned_cache(),
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


def single_figures(target: Real, index_of: Callable[..., int]) -> Table:
    """Replacements for the functions that return one figure. torch's own build a table of all figures at each call."""

    def reading(figure: Callable[[int], int]) -> Callable[..., int]:
        def read(device: Any = None) -> int:
            return figure(index_of(device, optional=True))

        return read

    return {
        "memory_allocated": reading(target.allocated),
        "max_memory_allocated": reading(target.highest_allocated),
        "memory_reserved": reading(target.all_reserved),
        "max_memory_reserved": reading(target.highest_reserved),
    }


@dataclass(frozen=True)
class PoolState:
    """The blocks of a pool at a point in time, as `torch._C._cuda_getCheckpointState` returns them."""

    pool: PoolId
    segments: list[Segment]


def snapshot(device: Device, asked: Sequence[int] | None = None) -> Table:
    """The result of `torch._C._cuda_memorySnapshot`. `asked`: a pool id, (0, 0) for all, and whether to add traces."""
    pool, traced = tuple(asked[:2]) if asked else (0, 0), not asked or all(asked[2:])
    found = device.history()
    traces: list[list[Table]] = [[] for _ in range(device.count)]
    for each in found.done if traced else ():
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
    return {
        "segments": [_described(each) for each in found.held if pool in ((0, 0), each.pool)],
        "device_traces": traces,
        "allocator_settings": {},
        "external_annotations": [],
    }


def _described(segment: Segment) -> Table:
    active = [each for each in segment.blocks if each.state != "inactive"]
    return {
        "device": segment.device,
        "address": segment.address,
        "total_size": segment.size,
        "allocated_size": sum(each.size for each in active if each.state == "active_allocated"),
        "active_size": sum(each.size for each in active),
        "requested_size": sum(each.requested for each in active),
        "stream": segment.stream,
        "segment_type": "large" if segment.large else "small",
        "segment_pool_id": segment.pool,
        "is_expandable": False,
        "frames": segment.frames,
        "blocks": [
            {
                "address": each.address,
                "size": each.size,
                "requested_size": each.requested,
                "state": each.state,
                "frames": each.frames,
            }
            for each in segment.blocks
        ],
    }


def pool_base(device: Device, note: Callable[[], None]) -> type:
    """The base class for torch's `MemPool`."""

    class MemPoolBase:
        def __init__(self, allocator: Any = None, *_: Any, **__: Any) -> None:
            note()
            self._pool_id, self._pool_allocator = (0, next(device.pool_numbers)), allocator
            self._pool_device = device.current()
            device.keep_pool(self._pool_device, self._pool_id)

        @property
        def id(self) -> PoolId:
            return self._pool_id

        @property
        def allocator(self) -> Any:
            return self._pool_allocator

        def use_count(self) -> int:
            return device.pool_users(self._pool_device, self._pool_id)

        def __del__(self) -> None:
            device.drop_pool(self._pool_device, self._pool_id)
            device.empty_pool(self._pool_id)

    return MemPoolBase
