"""Memory statistics of devices that have none, in bytes: tensors of the CPU with their peak and limit, sampled peaks.

On the CPU, a counter is used if its library is built. Otherwise each query searches Python's heap for tensors, and the
operating system supplies the peak. On other devices a thread samples the peak; the first query starts it.
"""

from __future__ import annotations

import functools
import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch

from torchdevice._torch import core

SAMPLE_SECONDS = 0.01
WORTH_BUILDING_SECONDS = 2.0
_STATUS = Path("/proc/self/status")
_PAGES = Path("/proc/self/statm")
_CLEAR = Path("/proc/self/clear_refs")


class Peak(Protocol):
    """The peak since the last reset. `now` is the current value."""

    def allocated(self, now: int) -> int: ...
    def reserved(self, now: int) -> int: ...
    def reset(self, now: int) -> None: ...


class Counter(Protocol):
    """Counts bytes as memory is allocated and freed, and refuses what is beyond a limit."""

    def held(self) -> int: ...
    def highest(self) -> int: ...
    def reset_highest(self) -> None: ...
    def refused(self) -> int: ...
    def set_limit(self, most: int | None, name: str) -> None: ...
    def set_relief(self, relief: Callable[[int], bool] | None) -> None: ...


def tensor_bytes(device_type: str) -> int:
    """Bytes of the storages of all tensors of a device type that Python or the autograd graph holds.

    Each storage counts once.
    """
    return sum(storage.nbytes() for storage in _storages(device_type))


def cpu_storages() -> list[torch.UntypedStorage]:
    """The storages that `tensor_bytes("cpu")` counts."""
    return _storages("cpu")


def _storages(device_type: str) -> list[torch.UntypedStorage]:
    kinds = _tensor_classes()
    seen: dict[int, torch.UntypedStorage] = {}
    known = [candidate for candidate in gc.get_objects() if type(candidate) in kinds]
    for tensor in (*known, *core.held_by_autograd(known)):
        storage = core.storage_of(tensor) if tensor.device.type == device_type else None
        if storage is not None:
            seen[storage.data_ptr()] = storage  # an empty storage has no address and no bytes
    return list(seen.values())


def _tensor_classes() -> frozenset[type]:
    """torch.Tensor and its subclasses, except those that wrap other tensors and own no memory (fake, functional)."""
    found: set[type] = set()
    pending: list[type] = [core.RealTensor]
    while pending:
        kind = pending.pop()
        if kind not in found and not core.wraps_tensors(kind):
            found.add(kind)
            pending.extend(type.__subclasses__(kind))
    return frozenset(found)


class ProcessMemory:
    """The memory of the process as the operating system reports it. The kernel records the peak."""

    def __init__(self) -> None:
        self._start = resident()
        self._at_reset = (self._start, 0)  # resident bytes and bytes of tensors
        self._seen = 0

    def grown(self) -> int:
        """The growth of the process since the start, in bytes."""
        return max(0, resident() - self._start)

    def allocated(self, now: int) -> int:
        """The bytes of tensors at the reset plus the largest growth of the process since then."""
        resident, held = self._at_reset
        self._seen = max(self._seen, now, held + max(0, _high_water() - resident))
        return self._seen

    def reserved(self, now: int) -> int:
        return max(now, _high_water() - self._start)

    def reset(self, now: int) -> None:
        """Reset the peak. Only Linux can reset its own peak. Elsewhere the new peak includes only values at queries."""
        _clear_high_water()
        self._at_reset = (_high_water(), now)
        self._seen = now


def process_figure(field: str) -> int | None:
    """A value of /proc/self/status in bytes; None if there is no such file."""
    if not _STATUS.exists():
        return None
    _, found, rest = _STATUS.read_bytes().partition(field.encode())
    return int(rest.split(maxsplit=1)[0]) << 10 if found else None


def resident() -> int:
    """The resident memory of the process in bytes."""
    if _PAGES.exists():
        return int(_PAGES.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import psutil  # slow to import

    return int(psutil.Process().memory_info().rss)


def _high_water() -> int:
    found = process_figure("VmHWM:")
    return resident() if found is None else found


def _clear_high_water() -> None:
    try:
        _CLEAR.write_text("5")  # "reset the peak resident set size", see proc(5)
    except OSError:  # no such file (macOS), or a sandbox that does not allow it
        return


class SampledPeak:
    """The largest value seen: at every query, and every 10 ms after the first query."""

    def __init__(self, allocated: Callable[[], int], reserved: Callable[[], int]) -> None:
        self._read = (allocated, reserved)
        self._most = [0, reserved()]
        self._resets = 0
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def allocated(self, now: int) -> int:
        self._sample(now)
        return self._most[0]

    def reserved(self, now: int) -> int:
        self._sample(reserved=now)
        return self._most[1]

    def reset(self, now: int) -> None:
        reserved = self._read[1]()
        with self._lock:
            self._most, self._resets = [now, reserved], self._resets + 1
        self._start()

    def _sample(self, allocated: int = 0, reserved: int = 0) -> None:
        self._start()
        with self._lock:
            self._most = [max(self._most[0], allocated), max(self._most[1], reserved)]

    def _start(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="torchdevice-memory", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(SAMPLE_SECONDS):
            resets = self._resets
            seen = [read() for read in self._read]
            with self._lock:
                if resets == self._resets:  # else the values may be older than the last reset
                    self._most = [*map(max, self._most, seen)]


@functools.cache
def sampled_peak(allocated: Callable[[], int], reserved: Callable[[], int]) -> SampledPeak:
    """The sampler for these two functions, one per process."""
    return SampledPeak(allocated, reserved)


process_memory = ProcessMemory()


class CountedPeak:
    """The peak of tensors from the counter, and that of the process from the operating system."""

    def __init__(self, counter: Counter, before: int) -> None:
        self._counter = counter
        self._before = before  # the peak before counting started

    def allocated(self, now: int) -> int:
        return max(now, self._before, self._counter.highest())

    def reserved(self, now: int) -> int:
        return process_memory.reserved(now)

    def reset(self, now: int) -> None:
        self._before = 0
        self._counter.reset_highest()
        process_memory.reset(now)


class CpuTensors:
    """The bytes of tensors on the CPU, their peak and their limit.

    A counter supplies all three if its library is built. It is built for a limit, or once queries have taken 2 seconds
    in total. Until then each query searches the heap, and the operating system supplies the peak of the process.

    Several owners may set a limit: the program by a fraction, and blocks. The smallest counts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._start: Callable[[bool], Counter | None] | None = None
        self._offered = False
        self._counter: Counter | None = None
        self._walked = 0.0
        self._peak: Peak = process_memory
        self._relief: Callable[[int], bool] | None = None
        self._limits: dict[str, int] = {}

    def count_by(self, start: Callable[[bool], Counter | None]) -> None:
        """Sets the function that starts counting, once. Its argument says whether it may build the library."""
        if not self._offered:
            self._start, self._offered = start, True

    def peak(self) -> Peak:
        """The object that supplies the peak."""
        if self._start is not None:
            self._start_counting()
        return self._peak

    def held(self) -> int:
        """The current bytes."""
        if self._start is not None:
            self._start_counting()
        if self._counter is not None:
            return self._counter.held()
        begun = time.perf_counter()
        found = tensor_bytes("cpu")
        self._walked += time.perf_counter() - begun
        self._peak.allocated(found)  # memory that was never written is not in the peak of the process
        return found

    def refused(self) -> int:
        """How many tensors were beyond the limit."""
        return self._counter.refused() if self._counter is not None else 0

    @property
    def most(self) -> int | None:
        """The limit in bytes, or None."""
        return min(self._limits.values(), default=None)

    def limit(self, owner: str, most: int | None, name: str) -> bool:
        """Refuse tensors beyond `most` bytes in all. Returns False if this is impossible: the library cannot be built.

        `owner`: who sets it; None removes only the limit of that owner. `name`: the device in the error, such as `CUDA`
        for a program that uses torch.cuda.
        """
        if most is not None and self._start is not None:
            self._start_counting(needed=True)
        if self._counter is None:
            return most is None
        if most is None:
            self._limits.pop(owner, None)
        else:
            self._limits[owner] = most
        self._counter.set_limit(self.most, name)
        return True

    def start_now(self) -> Counter | None:
        """Starts counting, and builds the library if it is missing. None if that is not possible."""
        self._start_counting(needed=True)
        return self._counter

    def relieve_by(self, relief: Callable[[int], bool] | None) -> None:
        """Set the function that is asked to free memory before the limit refuses a tensor of that many bytes."""
        self._relief = relief
        if self._counter is not None:
            self._counter.set_relief(relief)

    def _start_counting(self, needed: bool = False) -> None:
        """Tries to start counting: at the first query without building, and again when building is worth its time."""
        with self._lock:
            late = needed or self._walked > WORTH_BUILDING_SECONDS
            if self._start is None or not (late or not self._walked):
                return
            self._counter = self._start(late)
            if self._counter is not None:
                self._counter.set_relief(self._relief)
                self._peak = CountedPeak(self._counter, process_memory.allocated(self._counter.held()))
            if late or self._counter is not None:
                self._start = None  # counting has started, or cannot be started


cpu_tensors = CpuTensors()
