"""The `Device` interface for devices that exist: CPU, MPS, and those with a module like torch.cuda.

Each class supplies memory statistics in bytes, indices, generators and clocks. The replacements for functions of
torch._C that use them are in `devices`, `memory` and `streams`. `counted` has statistics for devices without their own.
"""

from __future__ import annotations

import functools
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchdevice._torch import core
from torchdevice.answers.counted import Peak, cpu_tensors, process_memory, sampled_peak
from torchdevice.answers.device import Clock, Description, Device, Figures, Graph, Usage, system
from torchdevice.answers.graphs import Recording, capturing
from torchdevice.errors import explain_error
from torchdevice.notices import warn
from torchdevice.policy.hosts import Host


class Real(Device):
    """The base class of devices that exist. It counts their memory unless they do so themselves."""

    def __init__(self, host: Host, count: int) -> None:
        super().__init__(host.type, count)
        self.module: Any = getattr(torch, host.type, None)
        self.ooms = 0
        # What was accumulated at the last reset.
        self._removed, self._ooms_removed = [0] * count, [0] * count

    def peak(self, index: int) -> Peak:
        """Needed unless the device counts its memory itself."""
        raise NotImplementedError

    def usage(self, index: int) -> Usage:
        allocated = self.allocated(index)
        reserved = max(allocated, self.reserved(index))
        peak = self.peak(index)
        tensors = self._figures(index, allocated, peak.allocated(allocated))
        ooms = self.failed() - self._ooms_removed[index]
        return Usage(tensors, self._figures(index, reserved, peak.reserved(reserved)), ooms=ooms)

    def highest_allocated(self, index: int) -> int:
        now = self.allocated(index)
        return max(now, self.peak(index).allocated(now))

    def all_reserved(self, index: int) -> int:
        """The reserved bytes, at least those of tensors: not every tensor's memory is resident."""
        return max(self.allocated(index), self.reserved(index))

    def highest_reserved(self, index: int) -> int:
        now = self.all_reserved(index)
        return max(now, self.peak(index).reserved(now))

    def failed(self) -> int:
        """How many allocations failed."""
        return self.ooms

    def _figures(self, index: int, now: int, highest: int) -> Figures:
        """The totals of allocated and freed bytes are estimates from the peak."""
        total = max(0, highest - self._removed[index])
        return Figures(now, max(now, highest), max(now, total), max(0, total - now))

    def reset_peak(self, index: int) -> None:
        self.peak(index).reset(self.allocated(index))

    def reset_accumulated(self, index: int) -> None:
        self._removed[index] = self.peak(index).allocated(self.allocated(index))
        self._ooms_removed[index] = self.failed()

    def free_and_total(self, index: int) -> tuple[int, int]:
        total = self.describe(index).total_memory
        return max(0, min(system().virtual_memory().available, total - self.reserved(index))), total

    def clock(self, timing: bool) -> Clock:
        return HostClock()

    def graph(self) -> Graph:
        return Recording([self.generator(index) for index in range(self.count)], self.type)

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

    _told = False  # that a limit is not enforced

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

    def failed(self) -> int:
        return self.ooms + cpu_tensors.refused()

    def set_fraction(self, fraction: float, index: int) -> None:
        super().set_fraction(fraction, index)
        self.apply_limit()

    def apply_limit(self) -> Callable[[], object]:
        """Enforce the limit that the program has set. All indices are this CPU, so the smallest counts.

        Returns the undo.
        """
        share = min(self._fraction)
        most = int(share * self.describe(0).total_memory) if share < 1 else None
        if not cpu_tensors.limit("fraction", most, "CUDA") and not self._told:
            self._told = True
            warn(
                explain_error(
                    f"set_per_process_memory_fraction({share}) was called",
                    "the target is the CPU, and the library that counts its tensors cannot be built, so the limit is "
                    "not enforced",
                    "install a C++ compiler",
                ),
                stacklevel=2,
            )
        return lambda: cpu_tensors.limit("fraction", None, "CUDA")

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
        now = self._allocated()
        self.peak(index).allocated(now)  # the first query starts the sampling
        return now

    def reserved(self, index: int) -> int:
        now = self._reserved()
        self.peak(index).reserved(now)
        return now

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

    def reset_peak(self, index: int) -> None:
        self.module.reset_peak_memory_stats(index)

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

    # The module builds a table of all figures at each call, so each figure takes one call.
    def highest_allocated(self, index: int) -> int:
        return int(self.module.max_memory_allocated(index))

    def all_reserved(self, index: int) -> int:
        return self.reserved(index)

    def highest_reserved(self, index: int) -> int:
        return int(self.module.max_memory_reserved(index))

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
