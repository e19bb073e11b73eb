"""The device interface: one object represents all devices of a type.

`real` implements it for devices that exist, `virtual` for a device that the C++ library makes. The replacements for
functions of torch._C in `devices`, `memory`, `streams`, `graphs`, `random`, `comm`, `libraries` and `mps` call it.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from torchdevice._torch.core import RealDevice
from torchdevice.config import visible_devices
from torchdevice.errors import CudaOnlyError, explain_error

Table = dict[str, Any]


def nothing(*_: Any, **__: Any) -> None:
    """Does nothing. For calls that have no effect on the device."""


def constant(value: Any) -> Callable[..., Any]:
    """A function that always returns `value`."""

    def answer(*_: Any, **__: Any) -> Any:
        return value

    return answer


def refusal(name: str, why: str) -> Callable[..., Any]:
    """A replacement for a function of torch._C that cannot work here. Calling it raises CudaOnlyError."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise CudaOnlyError(
            explain_error(
                f"torch._C.{name} was called",
                why,
                "call it only on the hardware that it needs, or use portable operators of torch",
            )
        )

    return refuse


@functools.cache
def system() -> Any:
    """psutil, imported on first use, because importing it would slow down activation."""
    import psutil

    return psutil


@dataclass(frozen=True)
class Description:
    """The values from which the properties of a device are made, for all namespaces."""

    name: str
    total_memory: int
    cores: int
    clock_khz: int = 0
    memory_clock_khz: int = 0
    memory_bus_width: int = 0
    l2_bytes: int = 0
    integrated: bool = True


@dataclass(frozen=True)
class Figures:
    """One statistic with the four values of `torch.cuda.memory_stats`."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0


@dataclass(frozen=True)
class Usage:
    """The memory of one device: bytes of tensors, bytes reserved from the system, blocks, and failed allocations."""

    tensors: Figures
    reserved: Figures
    blocks: Figures = field(default_factory=Figures)
    ooms: int = 0

    def nested(self) -> dict[str, Any]:
        """The dictionary that `torch._C._cuda_memoryStats` returns."""
        stats: dict[str, Any] = {}
        for name, source in _STATISTICS.items():
            values = dict(vars(getattr(self, source))) if source else dict(_ZERO)
            stats[name] = {"all": values, "small_pool": dict(_ZERO), "large_pool": dict(values)}
        stats.update(oversize_allocations=dict(_ZERO), oversize_segments=dict(_ZERO))
        stats.update(num_alloc_retries=0, num_ooms=self.ooms, max_split_size=-1, num_sync_all_streams=0)
        stats.update(num_device_alloc=self.blocks.allocated, num_device_free=self.blocks.freed)
        return stats


_ZERO = vars(Figures())
_STATISTICS = {  # name in torch's statistics → the field of `Usage` that it shows
    **dict.fromkeys(("allocated_bytes", "active_bytes", "requested_bytes"), "tensors"),
    "reserved_bytes": "reserved",
    **dict.fromkeys(("allocation", "segment", "active"), "blocks"),
    **dict.fromkeys(("inactive_split", "inactive_split_bytes"), ""),
}


@dataclass(frozen=True)
class HistorySettings:
    """The arguments of `torch.cuda.memory._record_memory_history`. `context`: which events keep their stack trace."""

    CONTEXTS = (None, "state", "alloc", "all")

    traced: bool
    context: str | None = None
    with_cpp: bool = False
    entries: int = 0
    clear: bool = False


Frame = dict[str, Any]


PoolId = tuple[int, int]


@dataclass(frozen=True)
class Block:
    """A part of a segment."""

    STATES = ("inactive", "active_allocated", "active_awaiting_free")

    address: int
    size: int
    requested: int
    state: str
    frames: list[Frame]


@dataclass(frozen=True)
class Segment:
    """Memory that an allocator reserved from the system, split into blocks."""

    device: int
    address: int
    size: int
    stream: int
    pool: PoolId
    large: bool
    frames: list[Frame]
    blocks: list[Block]


@dataclass(frozen=True)
class Action:
    """An event of an allocator, with the names that torch's own allocator uses."""

    device: int
    action: str
    address: int
    size: int
    stream: int
    microseconds: int
    frames: list[Frame]


@dataclass(frozen=True)
class History:
    """The segments that are held now, and the past events."""

    held: list[Segment] = field(default_factory=list)
    done: list[Action] = field(default_factory=list)


class Clock(Protocol):
    """An event in the device's work: it can be recorded and waited for, and measures time in milliseconds."""

    def record(self, stream: Any) -> None: ...
    def query(self) -> bool: ...
    def synchronize(self) -> None: ...
    def wait(self, stream: Any) -> None: ...
    def milliseconds_to(self, end: Any) -> float: ...


class Graph(Protocol):
    """A captured list of operators."""

    def begin(self, pool: PoolId) -> None: ...
    def end(self) -> None: ...
    def replay(self) -> None: ...
    def drop(self) -> None: ...
    def steps(self) -> list[str]: ...


class Device:
    """All devices of a type. The base class is a single device that works in order and uses the host's memory.

    `own_streams`: torch.Stream supports this type. `own_events`: torch.Event supports this type, with timing.
    `begun`: functions that initialize a device were called.
    """

    own_streams = False
    own_events = False
    begun = False

    def __init__(self, type: str, count: int) -> None:
        self.type = type
        self.count = count
        self.stream_numbers = itertools.count(1)  # of simulated streams; one series for all namespaces of this device
        self.pool_numbers = itertools.count(1)
        self._fraction = [1.0] * count
        self._local = threading.local()

    # --- devices

    def visible(self) -> int:
        """The number of devices that user code currently sees."""
        return visible_devices(self.count)

    def current(self) -> int:
        return getattr(self._local, "index", 0)

    def select(self, index: int) -> None:
        """Make a device current in this thread. All indices mean the same device, but code can read its choice back."""
        self._local.index = index

    def place(self, index: int) -> torch.device:
        """The device as a `torch.device`: the CPU has no index, and a single device has index 0."""
        return RealDevice(self.type) if self.type == "cpu" else RealDevice(self.type, 0)

    def describe(self, index: int) -> Description:
        raise NotImplementedError

    def begin(self) -> None:
        """A function was called that initializes a device."""
        self.begun = True

    def lost_by_fork(self) -> bool:
        """Whether a forked child cannot use the device. False for a device without a driver."""
        return False

    def synchronize(self) -> None:
        """Wait until the device has finished all submitted work."""

    def initialised(self) -> bool:
        """Whether the device is initialized already, so that queries beyond its count do not initialize it."""
        return True

    # --- memory

    def allocated(self, index: int) -> int:
        """Bytes of tensors."""
        raise NotImplementedError

    def reserved(self, index: int) -> int:
        """Bytes reserved from the system."""
        raise NotImplementedError

    def usage(self, index: int) -> Usage:
        raise NotImplementedError

    def stats(self, index: int) -> dict[str, Any]:
        """The statistics as the nested dictionary that torch's C functions return."""
        return self.usage(index).nested()

    def reset_peak(self, index: int) -> None:
        raise NotImplementedError

    def reset_accumulated(self, index: int) -> None:
        raise NotImplementedError

    def free_and_total(self, index: int) -> tuple[int, int]:
        raise NotImplementedError

    def empty_cache(self) -> None:
        """Release cached blocks. The CPU's allocator caches none."""

    def empty_pinned_cache(self) -> None:
        """The same for pinned memory of the host."""

    # Pools of memory. The base has one allocator for all of them.

    def begin_pool(self, index: int, pool: PoolId, of_stream: bool) -> None:
        """Take allocations of the current stream, or of this thread, from the pool. The pool gets one more user."""

    def end_pool(self, index: int, pool: PoolId) -> None:
        """Stop allocating from the pool."""

    def keep_pool(self, index: int, pool: PoolId) -> None:
        """Add a user to the pool."""

    def drop_pool(self, index: int, pool: PoolId) -> None:
        """Remove a user from the pool. The memory of a pool without users can be released."""

    def pool_users(self, index: int, pool: PoolId) -> int:
        return 1

    def empty_pool(self, pool: PoolId) -> None:
        """Release the cached blocks of a pool."""

    def restore_pool(self, index: int, pool: PoolId, segments: list[Segment]) -> None:
        """Restore the blocks of a pool to an earlier state."""
        raise NotImplementedError

    def storage_at(self, address: int, place: torch.device, size: int) -> torch.UntypedStorage:
        """A storage over memory that it does not own."""
        raise NotImplementedError

    def own(self, storage: int) -> None:
        """Let a storage, given by its address, own its memory again, after a checkpoint has restored that memory."""
        raise NotImplementedError

    def disown(self, storage: int) -> None:
        """Let a storage, given by its address, no longer own its memory. The memory stays allocated."""
        raise NotImplementedError

    def free(self, address: int) -> None:
        """Free memory that no storage owns."""

    def set_fraction(self, fraction: float, index: int) -> None:
        self._fraction[index] = fraction

    def fraction(self, index: int) -> float:
        return self._fraction[index]

    def record_history(self, settings: HistorySettings) -> bool:
        """Record allocations from now on. Returns False if the device cannot: only our own allocator can."""
        return False

    def history(self) -> History:
        return History()

    def observe_out_of_memory(self, observer: Callable[[int, int, int, int], None]) -> None:
        """Call the observer with device, requested, total and free bytes before an out-of-memory error is raised."""

    def pin(self, address: int, size: int) -> None:
        """Register host memory as pinned."""

    def unpin(self, address: int) -> None:
        """Undo `pin`."""

    # --- streams, events, graphs, random numbers

    def keep_busy(self, cycles: int) -> None:
        """Let the current stream wait for this number of cycles."""

    def set_sync_debug_mode(self, mode: int) -> None:
        """Warn (1) or raise (2) when the host is about to wait for the device."""

    def stream(self, index: int) -> int:
        """The number of the current stream of a device, in this thread."""
        return int(getattr(self._local, "streams", {}).get(index, 0))

    def set_stream(self, number: int, index: int) -> None:
        self._local.streams = {**getattr(self._local, "streams", {}), index: number}

    def clock(self, timing: bool) -> Clock:
        raise NotImplementedError

    def elapsed(self, start: Any, end: Any) -> float:
        """Milliseconds between two native events of the device."""
        raise NotImplementedError

    def graph(self) -> Graph:
        raise NotImplementedError

    def capturing(self) -> bool:
        """Whether this thread is capturing a graph."""
        raise NotImplementedError

    def generator(self, index: int) -> torch.Generator:
        return torch.default_generator
