"""The `Device` interface for devices that exist: CPU, MPS, and those with a module like torch.cuda.

Each class supplies memory statistics in bytes, indices, generators and clocks. The replacements for functions of
torch._C that use them are in `devices`, `memory` and `streams`. This module computes statistics for devices that have
none. On the CPU, a counter is used if its library is built. Otherwise each query searches Python's heap for tensors,
and the operating system supplies the peak. On other devices a thread samples the peak; the first query starts it.
"""

from __future__ import annotations

import functools
import gc
import os
import platform
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from torchdevice._torch import core
from torchdevice.answers.device import Clock, Description, Device, Figures, Graph, Usage, system
from torchdevice.answers.graphs import Recording, capturing
from torchdevice.policy.hosts import Host

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
    """Counts bytes as memory is allocated and freed."""

    def held(self) -> int: ...
    def highest(self) -> int: ...
    def reset_highest(self) -> None: ...


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
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def allocated(self, now: int) -> int:
        self._sample(now)
        return self._most[0]

    def reserved(self, now: int) -> int:
        self._sample(reserved=now)
        return self._most[1]

    def reset(self, now: int) -> None:
        self._most = [now, self._read[1]()]
        self._start()

    def _sample(self, allocated: int = 0, reserved: int = 0) -> None:
        self._start()
        self._most = [max(self._most[0], allocated), max(self._most[1], reserved)]

    def _start(self) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="torchdevice-memory", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(SAMPLE_SECONDS):
            self._most = [max(most, read()) for most, read in zip(self._most, self._read, strict=True)]


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
    """The bytes of tensors on the CPU, and their peak.

    A counter supplies both if its library is built. It is built once queries have taken 2 seconds in total. Until then
    each query searches the heap, and the operating system supplies the peak of the process.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._start: Callable[[bool], Counter | None] | None = None
        self._counter: Counter | None = None
        self._walked = 0.0
        self._peak: Peak = process_memory

    def count_by(self, start: Callable[[bool], Counter | None]) -> None:
        """Sets the function that starts counting. Its argument says whether it may build the library."""
        self._start = start

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
        return found

    def start_now(self) -> Counter | None:
        """Starts counting, and builds the library if it is missing. None if that is not possible."""
        self._start_counting(build_it=True)
        return self._counter

    def _start_counting(self, build_it: bool = False) -> None:
        """Tries to start counting: at the first query without building, and again when building is worth its time."""
        with self._lock:
            late = build_it or self._walked > WORTH_BUILDING_SECONDS
            if self._start is None or not (late or not self._walked):
                return
            self._counter = self._start(late)
            if self._counter is not None:
                self._peak = CountedPeak(self._counter, process_memory.allocated(self._counter.held()))
            if late or self._counter is not None:
                self._start = None  # counting has started, or cannot be started


cpu_tensors = CpuTensors()


class Real(Device):
    """The base class of devices that exist. It counts their memory unless they do so themselves."""

    def __init__(self, host: Host, count: int) -> None:
        super().__init__(host.type, count)
        self.module: Any = getattr(torch, host.type, None)
        self.ooms = 0
        self._removed = [0] * count  # the accumulated value at its last reset

    def peak(self, index: int) -> Peak:
        raise NotImplementedError

    def usage(self, index: int) -> Usage:
        allocated = self.allocated(index)
        reserved = max(allocated, self.reserved(index))
        peak = self.peak(index)
        tensors = self._figures(index, allocated, peak.allocated(allocated))
        return Usage(tensors, self._figures(index, reserved, peak.reserved(reserved)), ooms=self.ooms)

    def _figures(self, index: int, now: int, highest: int) -> Figures:
        """The totals of allocated and freed bytes are estimates from the peak."""
        total = max(0, highest - self._removed[index])
        return Figures(now, max(now, highest), max(now, total), max(0, total - now))

    def reset_peak(self, index: int) -> None:
        self.peak(index).reset(self.allocated(index))

    def reset_accumulated(self, index: int) -> None:
        self._removed[index] = self.peak(index).allocated(self.allocated(index))

    def free_and_total(self, index: int) -> tuple[int, int]:
        total = self.describe(index).total_memory
        return max(0, min(system().virtual_memory().available, total - self.reserved(index))), total

    def clock(self, timing: bool) -> Clock:
        return HostClock()

    def graph(self) -> Graph:
        return Recording()

    def capturing(self) -> bool:
        return capturing()


class HostClock:
    """The host's clock. On the CPU, work is finished when a call returns."""

    def __init__(self) -> None:
        self._ns = 0

    def record(self, stream: Any) -> None:
        self._ns = time.perf_counter_ns()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Does nothing: the work is finished."""

    def wait(self, stream: Any) -> None:
        """Does nothing: the work is finished."""

    def milliseconds_to(self, end: HostClock) -> float:
        return (end._ns - self._ns) / 1e6


class Cpu(Real):
    """The CPU. Its statistics come from the operating system and from our own count of tensors."""

    @functools.cache  # noqa: B019 - one object per process
    def describe(self, index: int) -> Description:
        frequency = system().cpu_freq() if hasattr(system(), "cpu_freq") else None
        mhz = (frequency.max or frequency.current) if frequency is not None else 0
        return Description(
            name=_processor_name(),
            total_memory=system().virtual_memory().total,
            cores=system().cpu_count(logical=False) or os.cpu_count() or 1,
            clock_khz=int(mhz * 1000),
            l2_bytes=_l2_bytes(),
        )

    def allocated(self, index: int) -> int:
        return cpu_tensors.held()

    def reserved(self, index: int) -> int:
        return process_memory.grown()

    def peak(self, index: int) -> Peak:
        return cpu_tensors.peak()

    def free_and_total(self, index: int) -> tuple[int, int]:
        memory = system().virtual_memory()
        return memory.available, memory.total


class Mps(Real):
    """Apple's GPU: one device that uses one stream and shares memory with the host."""

    def synchronize(self) -> None:
        self.module.synchronize()

    @functools.cache  # noqa: B019
    def describe(self, index: int) -> Description:
        return Description(
            name=core.mps_name() or f"Apple GPU ({_processor_name()})",
            total_memory=self.module.recommended_max_memory() or system().virtual_memory().total,
            cores=core.mps_core_count() or 1,
        )

    def _allocated(self) -> int:
        return int(self.module.current_allocated_memory())

    def _reserved(self) -> int:
        return int(self.module.driver_allocated_memory())

    def allocated(self, index: int) -> int:
        return self._allocated()

    def reserved(self, index: int) -> int:
        return self._reserved()

    def peak(self, index: int) -> Peak:
        return sampled_peak(self._allocated, self._reserved)

    def empty_cache(self) -> None:
        self.module.empty_cache()

    def set_fraction(self, fraction: float, index: int) -> None:
        super().set_fraction(fraction, index)
        self.module.set_per_process_memory_fraction(float(fraction))

    def generator(self, index: int) -> torch.Generator:
        return core.mps_generator()

    def clock(self, timing: bool) -> Clock:
        return _MpsClock(timing)


class _MpsClock:
    """A Metal event, which measures time on the GPU."""

    def __init__(self, timing: bool) -> None:
        self._event = core.MpsEvent(timing)

    def record(self, stream: Any) -> None:
        self._event.record()

    def query(self) -> bool:
        return bool(self._event.query())

    def synchronize(self) -> None:
        self._event.synchronize()

    def wait(self, stream: Any) -> None:
        self._event.wait()

    def milliseconds_to(self, end: _MpsClock) -> float:
        # Metal records the times when the work is finished. Without waiting, queued work would be included.
        self._event.synchronize()
        end._event.synchronize()
        return float(self._event.elapsed_time(end._event))


# torch.xpu has this since 2.10. Evaluated before `scoped` adds missing names of torch.cuda to other modules.
_LIMITS_MEMORY = frozenset(
    kind for kind in ("cuda", "xpu") if hasattr(getattr(torch, kind), "set_per_process_memory_fraction")
)


class Native(Real):
    """A device whose torch module has the same functions as torch.cuda: xpu, and cuda itself."""

    own_streams = True

    def visible(self) -> int:
        return self.count

    def current(self) -> int:
        return int(self.module.current_device())

    def place(self, index: int) -> torch.device:
        return core.RealDevice(self.type, index)

    def select(self, index: int) -> None:
        self.module.set_device(index)

    def synchronize(self) -> None:
        self.module.synchronize()

    @functools.cache  # noqa: B019
    def describe(self, index: int) -> Description:
        found = self.module.get_device_properties(index)
        cores = getattr(found, "multi_processor_count", None) or getattr(found, "gpu_subslice_count", None)
        return Description(
            name=found.name,
            total_memory=found.total_memory,
            cores=int(cores or getattr(found, "max_compute_units", None) or 1),
            clock_khz=getattr(found, "clock_rate", 0),
            memory_clock_khz=getattr(found, "memory_clock_rate", 0),
            l2_bytes=getattr(found, "L2_cache_size", 0),
            integrated=bool(getattr(found, "is_integrated", False)),
        )

    def stats(self, index: int) -> dict[str, Any]:
        return dict(self.module.memory_stats_as_nested_dict(index))

    def reset_accumulated(self, index: int) -> None:
        self.module.reset_accumulated_memory_stats(index)

    def stream(self, index: int) -> int:
        return int(torch.accelerator.current_stream(index).stream_id)

    def set_stream(self, number: int, index: int) -> None:
        self.select(index)
        kind = core.stream_type_number(self.type)
        torch.accelerator.set_stream(core.RealStream(stream_id=number, device_index=index, device_type=kind))

    def allocated(self, index: int) -> int:
        return int(self.module.memory_allocated(index))

    def reserved(self, index: int) -> int:
        return int(self.module.memory_reserved(index))

    def peak(self, index: int) -> Peak:
        return _NativePeak(self.module, index)

    def free_and_total(self, index: int) -> tuple[int, int]:
        free, total = self.module.mem_get_info(index)
        return int(free), int(total)

    def empty_cache(self) -> None:
        self.module.empty_cache()

    def set_fraction(self, fraction: float, index: int) -> None:
        super().set_fraction(fraction, index)
        if self.type in _LIMITS_MEMORY:
            self.module.set_per_process_memory_fraction(fraction, index)

    def initialised(self) -> bool:
        return bool(self.module.is_initialized())

    def generator(self, index: int) -> torch.Generator:
        if not self.initialised():
            self.module.init()
        return self.module.default_generators[index]

    def clock(self, timing: bool) -> Clock:
        return _NativeClock(self.module.Event(enable_timing=timing))


class _NativePeak:
    """The peaks that the device records itself."""

    def __init__(self, module: Any, index: int) -> None:
        self._module, self._index = module, index

    def allocated(self, now: int) -> int:
        return max(now, int(self._module.max_memory_allocated(self._index)))

    def reserved(self, now: int) -> int:
        return max(now, int(self._module.max_memory_reserved(self._index)))

    def reset(self, now: int) -> None:
        self._module.reset_peak_memory_stats(self._index)


class _NativeClock:
    def __init__(self, event: Any) -> None:
        self._event = event

    def record(self, stream: Any) -> None:
        self._event.record(stream)

    def query(self) -> bool:
        return bool(self._event.query())

    def synchronize(self) -> None:
        self._event.synchronize()

    def wait(self, stream: Any) -> None:
        self._event.wait(stream)

    def milliseconds_to(self, end: _NativeClock) -> float:
        return float(self._event.elapsed_time(end._event))


_KINDS: dict[str, type[Real]] = {"cpu": Cpu, "mps": Mps}


def target_of(host: Host, told: int = 1) -> Real:
    """The device object for a host. `told`: the number of devices that code sees on a CPU or MPS host."""
    kind = _KINDS.get(host.type, Native)
    return kind(host, host.count if kind is Native else told)


def _processor_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "CPU"


def _l2_bytes() -> int:
    size = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    text = size.read_text().strip() if size.exists() else ""
    units = {"K": 10, "M": 20}
    return int(text[:-1]) << units[text[-1]] if text[-1:] in units and text[:-1].isdigit() else 0
