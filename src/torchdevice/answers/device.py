"""The protocol between what torch asks and who answers: one object that stands for all devices of a type.

`real` implements it for the devices that exist, `virtual` for a device that the C++ library makes. The functions of
torch._C in `devices`, `memory`, `streams`, `graphs`, `random`, `comm`, `libraries` and `mps` are written against it.
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
    """For calls whose effect has no meaning on the device."""


def constant(value: Any) -> Callable[..., Any]:
    """A function that always answers the same."""

    def answer(*_: Any, **__: Any) -> Any:
        return value

    return answer


def refusal(name: str, why: str) -> Callable[..., Any]:
    """A function of torch._C that cannot be answered: it says so when it is called."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise CudaOnlyError(
            explain_error(
                f"torch._C.{name} was asked for",
                why,
                "guard this call, use the portable operators of torch, or run it on the hardware that it needs",
            )
        )

    return refuse


@functools.cache
def system() -> Any:
    """psutil, imported by the first question: importing it takes longer than an activation should."""
    import psutil

    return psutil


@dataclass(frozen=True)
class Description:
    """A device in the figures that all namespaces' properties are made of."""

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
    """One figure in the words of `torch.cuda.memory_stats`."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0


@dataclass(frozen=True)
class Usage:
    """What one device holds: bytes of tensors, bytes taken from the system, blocks; and refused allocations."""

    tensors: Figures
    reserved: Figures
    blocks: Figures = field(default_factory=Figures)
    ooms: int = 0

    def nested(self) -> dict[str, Any]:
        """What `torch._C._cuda_memoryStats` returns."""
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
    """What `torch.cuda.memory._record_memory_history` asks for. `context`: whose stacks are kept, of none to all."""

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
    """A piece of a segment."""

    STATES = ("inactive", "active_allocated", "active_awaiting_free")

    address: int
    size: int
    requested: int
    state: str
    frames: list[Frame]


@dataclass(frozen=True)
class Segment:
    """Memory that an allocator took from the system, in blocks."""

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
    """Something that an allocator did, in the words of torch's own."""

    device: int
    action: str
    address: int
    size: int
    stream: int
    microseconds: int
    frames: list[Frame]


@dataclass(frozen=True)
class History:
    """What is held now, and what was done before."""

    held: list[Segment] = field(default_factory=list)
    done: list[Action] = field(default_factory=list)


class Clock(Protocol):
    """A point in the device's work: recorded, waited for, and told apart in milliseconds."""

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
    """All devices of a type. The base is one device whose work is done in order, with the host's memory behind it.

    `own_streams`: torch.Stream knows streams of this type. `own_events`: torch.Event does, with times.
    """

    own_streams = False
    own_events = False

    def __init__(self, type: str, count: int) -> None:
        self.type = type
        self.count = count
        self.stream_numbers = itertools.count(1)  # of stand-ins; one series for all namespaces that this device answers
        self.pool_numbers = itertools.count(1)
        self._fraction = [1.0] * count
        self._local = threading.local()

    # --- devices

    def visible(self) -> int:
        """How many devices code is told of at the moment."""
        return visible_devices(self.count)

    def current(self) -> int:
        return getattr(self._local, "index", 0)

    def select(self, index: int) -> None:
        """Make a device current in this thread. All of them are the one device, but code reads its choice back."""
        self._local.index = index

    def place(self, index: int) -> torch.device:
        """A device as torch knows it: the CPU has no index, and where there is one device it is 0."""
        return RealDevice(self.type) if self.type == "cpu" else RealDevice(self.type, 0)

    def describe(self, index: int) -> Description:
        raise NotImplementedError

    def lost_by_fork(self) -> bool:
        """Whether a forked child cannot use the device. It can where there is no driver to lose."""
        return False

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""

    def initialised(self) -> bool:
        """Whether asking for more than a count leaves the device as it is."""
        return True

    # --- memory

    def allocated(self, index: int) -> int:
        """Bytes of tensors."""
        raise NotImplementedError

    def reserved(self, index: int) -> int:
        """Bytes taken from the system."""
        raise NotImplementedError

    def usage(self, index: int) -> Usage:
        raise NotImplementedError

    def stats(self, index: int) -> dict[str, Any]:
        """The figures in the nested form that torch's C functions give."""
        return self.usage(index).nested()

    def reset_peak(self, index: int) -> None:
        raise NotImplementedError

    def reset_accumulated(self, index: int) -> None:
        raise NotImplementedError

    def free_and_total(self, index: int) -> tuple[int, int]:
        raise NotImplementedError

    def empty_cache(self) -> None:
        """Give cached blocks back; the CPU's allocator keeps none."""

    def empty_pinned_cache(self) -> None:
        """The same for pinned memory of the host."""

    # Pools of memory. The base has one allocator for all of them.

    def begin_pool(self, index: int, pool: PoolId, of_stream: bool) -> None:
        """What the current stream, or this thread, allocates comes from the pool; it is used once more."""

    def end_pool(self, index: int, pool: PoolId) -> None:
        """Allocate as before."""

    def keep_pool(self, index: int, pool: PoolId) -> None:
        """The pool is used once more."""

    def drop_pool(self, index: int, pool: PoolId) -> None:
        """The pool is used once less. Without users its memory can be given back."""

    def pool_users(self, index: int, pool: PoolId) -> int:
        return 1

    def empty_pool(self, pool: PoolId) -> None:
        """Give cached blocks of a pool back."""

    def restore_pool(self, index: int, pool: PoolId, segments: list[Segment]) -> None:
        """Bring the blocks of a pool to the state that they had."""
        raise NotImplementedError

    def storage_at(self, address: int, place: torch.device, size: int) -> torch.UntypedStorage:
        """A storage over memory that it does not own."""
        raise NotImplementedError

    def own(self, storage: int) -> None:
        """Let a storage, given by its address, own the memory that it is over. A checkpoint brought that back."""
        raise NotImplementedError

    def disown(self, storage: int) -> None:
        """Let a storage, given by its address, own nothing. Its memory stays allocated."""
        raise NotImplementedError

    def free(self, address: int) -> None:
        """Free memory that no storage owns."""

    def set_fraction(self, fraction: float, index: int) -> None:
        self._fraction[index] = fraction

    def fraction(self, index: int) -> float:
        return self._fraction[index]

    def record_history(self, settings: HistorySettings) -> bool:
        """Note allocations from now on; whether it does. Only a device with an allocator of ours sees them."""
        return False

    def history(self) -> History:
        return History()

    def observe_out_of_memory(self, observer: Callable[[int, int, int, int], None]) -> None:
        """Call it with device, bytes asked for, total and free bytes before an out-of-memory error is raised."""

    def pin(self, address: int, size: int) -> None:
        """Make memory of the host known as pinned."""

    def unpin(self, address: int) -> None:
        """Undo it."""

    # --- streams, events, graphs, random numbers

    def keep_busy(self, cycles: int) -> None:
        """Let the current stream do nothing for so long."""

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
        """Milliseconds between two events of the device's own."""
        raise NotImplementedError

    def graph(self) -> Graph:
        raise NotImplementedError

    def capturing(self) -> bool:
        """Whether this thread is capturing a graph."""
        raise NotImplementedError

    def generator(self, index: int) -> torch.Generator:
        return torch.default_generator
