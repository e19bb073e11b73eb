"""The `Device` interface for a virtual device. The C++ library holds its statistics, streams and graphs.

`virtual.library` wraps the library. This class gets it when the device is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import torch

from torchdevice._torch.core import RealDevice
from torchdevice.answers.device import Description, Device, Graph, History, HistorySettings, PoolId, Segment

# The device that programs see: a GPU of the Ampere class, so that they choose bfloat16. Its memory is that of the host.
DESCRIPTIONS = {
    "cuda": Description(
        "Virtual CUDA device",
        0,
        cores=108,
        clock_khz=1410000,
        memory_clock_khz=1215000,
        memory_bus_width=5120,
        l2_bytes=40 << 20,
        integrated=False,
    ),
    "xpu": Description("Virtual XPU device", 0, cores=512, integrated=False),
    "mps": Description("Virtual Apple GPU", 0, cores=8),
}


class Library(Protocol):
    """The functions of the C++ library that are used here."""

    def call(self, name: str, *arguments: object) -> int: ...
    def statistics(self, device: int) -> dict[str, Any]: ...
    def elapsed(self, start_event: int, end_event: int) -> float: ...
    def capture_begin(self, pool: PoolId) -> int: ...
    def history(self) -> History: ...
    def observe_out_of_memory(self, observer: Callable[[int, int, int, int], None]) -> None: ...


class Virtual(Device):
    """All virtual devices of a process. `capacity`: the reported memory per device; `limit`: its limit in bytes."""

    own_streams = True
    own_events = True

    def __init__(self, kind: str, count: int, library: Library, capacity: int, limit: int = 0) -> None:
        super().__init__(kind, count)
        self._library = library
        self._limit = limit
        self._description = replace(DESCRIPTIONS[kind], total_memory=capacity)

    def visible(self) -> int:
        return self.count

    def begin(self) -> None:
        torch.get_device_module(self.type).init()

    def current(self) -> int:
        return self._library.call("get_device")

    def select(self, index: int) -> None:
        self._library.call("set_device", index)

    def place(self, index: int) -> torch.device:
        return RealDevice(self.type, index)

    def describe(self, index: int) -> Description:
        return self._description

    def allocated(self, index: int) -> int:
        return int(self.stats(index)["allocated_bytes"]["all"]["current"])

    def reserved(self, index: int) -> int:
        return int(self.stats(index)["reserved_bytes"]["all"]["current"])

    def synchronize(self) -> None:
        self._library.call("synchronize", self.current())

    def empty_cache(self) -> None:
        self.empty_pool((0, 0))

    def lost_by_fork(self) -> bool:
        return bool(self._library.call("lost_by_fork"))

    def stats(self, index: int) -> dict[str, Any]:
        none = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
        oversize = {"oversize_allocations": none, "oversize_segments": dict(none), "max_split_size": -1}
        return self._library.statistics(index) | oversize

    def empty_pinned_cache(self) -> None:
        self._library.call("empty_pinned_cache")

    def begin_pool(self, index: int, pool: PoolId, of_stream: bool) -> None:
        self._library.call("begin_pool", index, *pool, of_stream)

    def end_pool(self, index: int, pool: PoolId) -> None:
        self._library.call("end_pool", index, *pool)

    def keep_pool(self, index: int, pool: PoolId) -> None:
        self._library.call("keep_pool", index, *pool)

    def drop_pool(self, index: int, pool: PoolId) -> None:
        self._library.call("drop_pool", index, *pool)

    def pool_users(self, index: int, pool: PoolId) -> int:
        return self._library.call("pool_users", index, *pool)

    def empty_pool(self, pool: PoolId) -> None:
        self._library.call("empty_cache", *pool)

    def restore_pool(self, index: int, pool: PoolId, segments: list[Segment]) -> None:
        lines = []
        for segment in segments:
            lines.append(f"G {segment.address}")
            lines += [f"P {each.size} {each.requested} {each.state != 'inactive':d}" for each in segment.blocks]
        self._library.call("restore_pool", index, *pool, "\n".join(lines))

    def storage_at(self, address: int, place: torch.device, size: int) -> torch.UntypedStorage:
        storage = torch.UntypedStorage(0, device=place)
        self._library.call("point", storage._cdata, address, size)
        return storage

    def own(self, storage: int) -> None:
        self._library.call("own", storage)

    def disown(self, storage: int) -> None:
        self._library.call("disown", storage)

    def free(self, address: int) -> None:
        for segment in self.history().held:
            if segment.address <= address < segment.address + segment.size:
                self._library.call("free", segment.device, address)

    def reset_peak(self, index: int) -> None:
        self._library.call("reset_peak", index)

    def reset_accumulated(self, index: int) -> None:
        self._library.call("reset_accumulated", index)

    def free_and_total(self, index: int) -> tuple[int, int]:
        total = self._library.call("limit", index) or self._description.total_memory
        return self._library.call("free_memory", index), total

    def set_fraction(self, fraction: float, index: int) -> None:
        super().set_fraction(fraction, index)
        limit = max(1, int(self._description.total_memory * fraction)) if fraction < 1 else self._limit  # 0 is no limit
        self._library.call("set_limit", index, limit)

    def record_history(self, settings: HistorySettings) -> bool:
        context = HistorySettings.CONTEXTS.index(settings.context)
        self._library.call(
            "record_history", settings.traced, context, settings.with_cpp, settings.entries, settings.clear
        )
        return settings.traced

    def history(self) -> History:
        return self._library.history()

    def observe_out_of_memory(self, observer: Callable[[int, int, int, int], None]) -> None:
        self._library.observe_out_of_memory(observer)

    def pin(self, address: int, size: int) -> None:
        self._library.call("pin", address, size)

    def unpin(self, address: int) -> None:
        self._library.call("unpin", address)

    def keep_busy(self, cycles: int) -> None:
        self._library.call("keep_busy", cycles / (self._description.clock_khz or 1_000_000))

    def set_sync_debug_mode(self, mode: int) -> None:
        self._library.call("sync_debug_mode", mode)

    def stream(self, index: int) -> int:
        return self._library.call("current_stream", index)

    def set_stream(self, number: int, index: int) -> None:
        self.select(index)
        self._library.call("set_stream", number, index)

    def elapsed(self, start: Any, end: Any) -> float:
        return self._library.elapsed(start.event_id, end.event_id)

    def graph(self) -> Graph:
        return _Captured(self._library)

    def capturing(self) -> bool:
        return bool(self._library.call("capturing"))

    def generator(self, index: int) -> torch.Generator:
        """The default generator of a device, as a Python object."""
        self._library.call("default_generators", 1)
        try:
            return torch.Generator(device=RealDevice(self.type, index))
        finally:
            self._library.call("default_generators", 0)


class _Captured:
    """A graph in the C++ library."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._number = 0

    def begin(self, pool: PoolId) -> None:
        self._number = self._library.capture_begin(pool)

    def end(self) -> None:
        self._library.call("capture_end", self._number)

    def replay(self) -> None:
        self._library.call("capture_replay", self._number)

    def steps(self) -> list[str]:
        return []  # the library does not store names

    def drop(self) -> None:
        """Discard the calls. A capture in progress ends."""
        if self._number:
            self._library.call("capture_drop", self._number)
        self._number = 0

    def __del__(self) -> None:
        self.drop()
