"""What the device that is there can tell and do, in one shape for all: one class per kind of device.

The shape is what CUDA's C functions need (figures in bytes, indices, generators, clocks); the functions themselves are
in device.py, memory.py, streams.py. Nothing here knows of the namespaces that are answered.
"""

from __future__ import annotations

import functools
import os
import platform
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from torchdevice import compat
from torchdevice.config import visible_devices
from torchdevice.cuda.accounting import Peak, process_memory, sampled_peak, tensor_bytes
from torchdevice.policy.hosts import Host


@dataclass(frozen=True)
class Description:
    """A device in the figures that all namespaces' properties are made of."""

    name: str
    total_memory: int
    cores: int
    clock_khz: int = 0
    memory_clock_khz: int = 0
    l2_bytes: int = 0
    integrated: bool = True


@functools.cache
def system() -> Any:
    """psutil, imported by the first question: importing it takes longer than an activation should."""
    import psutil

    return psutil


class Clock(Protocol):
    """A point in the device's work: recorded, waited for, and told apart in milliseconds."""

    def record(self, stream: Any) -> None: ...
    def query(self) -> bool: ...
    def synchronize(self) -> None: ...
    def wait(self, stream: Any) -> None: ...
    def milliseconds_to(self, end: Any) -> float: ...


class Target:
    """The part that all devices share: one device, whose work is in order, with the host's memory behind it."""

    native_streams = False

    def __init__(self, host: Host, count: int) -> None:
        self.type = host.type
        self.count = count
        self.module: Any = getattr(torch, host.type, None)
        self._fraction = [1.0] * count
        self._chosen = threading.local()
        self.ooms = 0

    def visible(self) -> int:
        """How many devices code is told of at the moment."""
        return visible_devices(self.count)

    def current(self) -> int:
        return getattr(self._chosen, "index", 0)

    def device(self) -> torch.device:
        """The current device as torch knows it: the CPU has no number, and where there is one device it is 0."""
        return compat.RealDevice(self.type) if self.type == "cpu" else compat.RealDevice(self.type, 0)

    def select(self, index: int) -> None:
        """Make a device current, in this thread: all of them are the one device, but code reads its choice back."""
        self._chosen.index = index

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""

    def describe(self, index: int) -> Description:
        raise NotImplementedError

    def allocated(self, index: int) -> int:
        raise NotImplementedError

    def reserved(self, index: int) -> int:
        raise NotImplementedError

    def peak(self, index: int) -> Peak:
        raise NotImplementedError

    def free_and_total(self, index: int) -> tuple[int, int]:
        total = self.describe(index).total_memory
        return max(0, min(system().virtual_memory().available, total - self.reserved(index))), total

    def empty_cache(self) -> None:
        """Give cached blocks back; the CPU's allocator keeps none."""

    def set_fraction(self, fraction: float, index: int) -> None:
        self._fraction[index] = fraction

    def fraction(self, index: int) -> float:
        return self._fraction[index]

    def initialised(self) -> bool:
        """Whether asking for more than a count leaves the device as it is."""
        return True

    def generator(self, index: int) -> torch.Generator:
        return torch.default_generator

    def clock(self, timing: bool) -> Clock:
        return HostClock()


class HostClock:
    """On the CPU work is done when the call returns, so the host's clock is the device's."""

    def __init__(self) -> None:
        self._ns = 0

    def record(self, stream: Any) -> None:
        self._ns = time.perf_counter_ns()

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Done already."""

    def wait(self, stream: Any) -> None:
        """Done already."""

    def milliseconds_to(self, end: HostClock) -> float:
        return (end._ns - self._ns) / 1e6


class Cpu(Target):
    """The processor: figures from the operating system and from our own count of tensors."""

    @functools.cache  # noqa: B019 - one object a process
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
        return tensor_bytes("cpu")

    def reserved(self, index: int) -> int:
        return process_memory.grown()

    def peak(self, index: int) -> Peak:
        return process_memory

    def free_and_total(self, index: int) -> tuple[int, int]:
        memory = system().virtual_memory()
        return memory.available, memory.total


class Mps(Target):
    """Apple's GPU: one device, one stream that matters, memory shared with the host."""

    def synchronize(self) -> None:
        self.module.synchronize()

    @functools.cache  # noqa: B019
    def describe(self, index: int) -> Description:
        return Description(
            name=compat.mps_name() or f"Apple GPU ({_processor_name()})",
            total_memory=self.module.recommended_max_memory() or system().virtual_memory().total,
            cores=compat.mps_core_count() or 1,
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
        return compat.mps_generator()

    def clock(self, timing: bool) -> Clock:
        return _MpsClock(timing)


class _MpsClock:
    """Metal's own event; its times are the GPU's."""

    def __init__(self, timing: bool) -> None:
        self._event = compat.MpsEvent(timing)

    def record(self, stream: Any) -> None:
        self._event.record()

    def query(self) -> bool:
        return bool(self._event.query())

    def synchronize(self) -> None:
        self._event.synchronize()

    def wait(self, stream: Any) -> None:
        self._event.wait()

    def milliseconds_to(self, end: _MpsClock) -> float:
        # Metal knows the times when the work is done; without waiting it would count work that is still queued.
        self._event.synchronize()
        end._event.synchronize()
        return float(self._event.elapsed_time(end._event))


class Native(Target):
    """A device whose torch module is shaped as torch.cuda is (xpu, and cuda itself): asked by the same names."""

    native_streams = True

    def visible(self) -> int:
        return self.count

    def current(self) -> int:
        return int(self.module.current_device())

    def device(self) -> torch.device:
        return compat.RealDevice(self.type, self.current())

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
    """The device keeps its own peaks."""

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


_KINDS = {"cpu": Cpu, "mps": Mps}


def target_of(host: Host, told: int = 1) -> Target:
    """The target for a host's device. `told`: where there is only one, the number of devices that code is told."""
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
