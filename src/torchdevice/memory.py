"""Memory of the target, the process and the machine: a summary, a memory pressure level, and a limit.

    import torchdevice.memory as memory

    print(memory.summary())
    if memory.pressure() >= memory.Pressure.WARNING:
        batch_size //= 2
    with memory.limit("8GiB"):
        train()

The functions work with and without an active session. Without one the target is the accelerator of this machine, or its
CPU.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchdevice.answers.counted import cpu_tensors, process_figure, resident
from torchdevice.answers.device import system
from torchdevice.answers.real import Cpu, Real, target_of
from torchdevice.environment import environment
from torchdevice.errors import ConfigError, explain_error
from torchdevice.notices import warn
from torchdevice.policy.hosts import this_host
from torchdevice.reporting.units import size
from torchdevice.translate.translator import translator
from torchdevice.virtual import cpu_memory
from torchdevice.virtual.installer import parse_size

__all__ = ["Pressure", "Reading", "Summary", "Watch", "limit", "on_pressure", "pressure", "summary"]

# A device, a container or a machine with less than this share free is under pressure.
WARNING_BELOW, CRITICAL_BELOW = 0.10, 0.05
# Linux reports the share of the last ten seconds, in percent, in which some or all processes waited for memory.
STALLED_PERCENT = 10.0
_STALLS = Path("/proc/pressure/memory")
_CONTAINER = Path("/sys/fs/cgroup")
# The memory pressure level of the macOS kernel. `_MAC_LEVELS` maps Apple's numbers.
_MAC_LEVEL = b"kern.memorystatus_vm_pressure_level"


class Pressure(enum.IntEnum):
    """How short memory is. Levels can be compared: `pressure() >= Pressure.WARNING`."""

    NORMAL = 0
    WARNING = 1
    CRITICAL = 2

    def __str__(self) -> str:
        return self.name.lower()


_MAC_LEVELS = {1: Pressure.NORMAL, 2: Pressure.WARNING, 4: Pressure.CRITICAL}


@dataclass(frozen=True)
class Reading:
    """The memory pressure that one source reports: the target, the container, or the operating system.

    - `source`: the name of the source.
    - `level`: the pressure level of this source alone.
    - `detail`: the measured value, as text.
    """

    source: str
    level: Pressure
    detail: str


@dataclass(frozen=True)
class Summary:
    """The state of memory at one point in time, in bytes. `str` formats it as text.

    - `target`: the device type that computes.
    - `allocated`: bytes of tensors on the target.
    - `reserved`: bytes that its allocator, or on a CPU the process, has reserved from the system.
    - `free`: the free part of `total` on the target.
    - `total`: the target's memory.
    - `resident`: the resident memory of the process.
    - `available`: the memory that is available on the machine.
    - `machine`: the machine's memory.
    - `readings`: the sources of `pressure`.
    """

    target: str
    allocated: int
    reserved: int
    free: int
    total: int
    resident: int
    available: int
    machine: int
    readings: tuple[Reading, ...]

    @property
    def pressure(self) -> Pressure:
        """The highest level of all readings."""
        return _highest(self.readings)

    def __str__(self) -> str:
        told = [f"{reading.source}: {reading.detail}" for reading in self.readings if reading.level]
        return "\n".join(
            [
                f"target    {self.target}: {size(self.allocated)} in tensors, {size(self.reserved)} reserved, "
                f"{size(self.free)} of {size(self.total)} free",
                f"process   {size(self.resident)} resident",
                f"machine   {size(self.available)} of {size(self.machine)} available",
                f"pressure  {self.pressure}{' (' + '; '.join(told) + ')' if told else ''}",
            ]
        )


def summary() -> Summary:
    """Returns the memory of the target, the process and the machine, and the sources of memory pressure."""
    device = _target()
    free, total = _free_and_total(device)
    machine = system().virtual_memory()
    index = device.current()
    return Summary(
        target=device.type,
        allocated=device.allocated(index),
        reserved=device.reserved(index),
        free=free,
        total=total,
        resident=resident(),
        available=machine.available,
        machine=machine.total,
        readings=tuple(readings()),
    )


def pressure() -> Pressure:
    """Returns the memory pressure: the highest level of the target, the container and the operating system.

    For the target and the container, the level is `WARNING` below 10 % free memory and `CRITICAL` below 5 %. On Linux,
    the time that processes wait for memory counts as well (`/proc/pressure/memory`). macOS reports its own level.
    """
    return _highest(readings())


def _highest(found: Any) -> Pressure:
    return max((reading.level for reading in found), default=Pressure.NORMAL)


def readings() -> Iterator[Reading]:
    """The readings of all sources on this machine."""
    device = _target()
    yield _share_free(device.type, *_free_and_total(device))
    yield from _container()
    yield from _linux()
    yield from _mac()


def _share_free(source: str, free: int, total: int) -> Reading:
    share = free / total if total else 1.0
    level = (
        Pressure.CRITICAL if share < CRITICAL_BELOW else Pressure.WARNING if share < WARNING_BELOW else Pressure.NORMAL
    )
    return Reading(source, level, f"{size(free)} of {size(total)} free")


def _container() -> Iterator[Reading]:
    """The memory limit of this process's container. File caches, which the kernel can drop, count as free."""
    most, used = (_number(_CONTAINER / name) for name in ("memory.max", "memory.current"))
    if most is None or used is None:  # no container, or one without a limit ("max")
        return
    dropped = re.search(r"^inactive_file (\d+)$", (_CONTAINER / "memory.stat").read_text(), re.M)
    yield _share_free("container", most - used + int(dropped[1] if dropped else 0), most)


def _number(path: Path) -> int | None:
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdigit() else None


def _linux() -> Iterator[Reading]:
    try:
        text = _STALLS.read_text()
    except OSError:  # not Linux, or a kernel that was built or started without pressure information
        return
    shares = {kind: float(share) for kind, share in re.findall(r"^(some|full) avg10=([0-9.]+)", text, re.M)}
    some, all_ = shares.get("some", 0.0), shares.get("full", 0.0)
    level = (
        Pressure.CRITICAL
        if all_ >= STALLED_PERCENT
        else Pressure.WARNING
        if some >= STALLED_PERCENT
        else Pressure.NORMAL
    )
    yield Reading("Linux", level, f"processes waited {some:.0f} % of the last 10 seconds for memory")


def _mac() -> Iterator[Reading]:
    if sys.platform != "darwin":
        return
    level = _mac_level(ctypes.CDLL(None))
    if level is not None:
        yield Reading("macOS", level, f"memory pressure is {level}")


def _mac_level(libc: Any) -> Pressure | None:
    number, size = ctypes.c_int(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_int))
    if libc.sysctlbyname(_MAC_LEVEL, ctypes.byref(number), ctypes.byref(size), None, ctypes.c_size_t(0)):
        return None
    return _MAC_LEVELS.get(number.value)


class Watch:
    """Watches the pressure until `stop()`, or until the end of a `with` block. Made by `on_pressure`."""

    def __init__(self, callback: Callable[[Pressure], object], seconds: float) -> None:
        self._callback = callback
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="torchdevice-pressure", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No callback runs after this returns."""
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _watch(self) -> None:
        before = Pressure.NORMAL
        while not self._ended.is_set():
            now = pressure()
            if now != before:
                before = now
                try:
                    self._callback(now)
                except Exception as error:  # the watch must not end silently
                    warn(
                        f"torchdevice: the callback {self._callback!r} raised {error!r}; the watch ended",
                        level=logging.ERROR,
                        stacklevel=2,
                    )
                    return
            self._ended.wait(self._seconds)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def on_pressure(callback: Callable[[Pressure], object], seconds: float = 1.0) -> Watch:
    """Call `callback(level)` in a thread whenever the level of `pressure()` changes.

    - `callback`: receives the new level. It is called immediately if the level is above `NORMAL`.
    - `seconds`: the interval between checks.
    """
    return Watch(callback, seconds)


def limit(size: str | int) -> AbstractContextManager[None]:
    """Limits the memory of this process on the target inside a `with` block. Above it, out-of-memory errors are raised.

    On an accelerator, this sets the limit of its allocator. On a CPU, it limits the bytes of all tensors of the
    process. Without a C++ compiler, the operating system's limit is used instead, under Linux only: it also counts
    everything else that the process allocates inside the block. The previous limit is restored afterwards.

    - `size`: bytes, or text such as "8GiB".
    """
    wanted = parse_size(size, f"memory.limit({size!r})") if isinstance(size, str) else int(size)
    device = _target()
    return _limited_cpu(device, wanted) if isinstance(device, Cpu) else _limited_device(device, wanted)


# The fractions of MPS memory set by nested `limit` blocks, innermost last. torch.mps cannot report the current one.
_mps_shares: list[float] = []


@contextmanager
def _limited_device(device: Real, wanted: int) -> Iterator[None]:
    index = device.current()
    before, share = _share(device, index), min(1.0, wanted / device.describe(index).total_memory)
    device.set_fraction(share, index)
    _mps_shares.append(share)
    try:
        yield
    finally:
        _mps_shares.pop()
        device.set_fraction(before, index)


def _share(device: Real, index: int) -> float:
    """The current limit as a fraction. torch.mps starts with the value of its environment variable, or 1.7."""
    if device.type == "mps":
        return _mps_shares[-1] if _mps_shares else float(environment().get("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "1.7"))
    ask = getattr(device.module, "get_per_process_memory_fraction", None)
    return 1.0 if ask is None else float(ask(index))


_blocks = itertools.count()


@contextmanager
def _limited_cpu(device: Cpu, wanted: int) -> Iterator[None]:
    name = "CUDA" if translator.active else "CPU"
    owner = f"block {next(_blocks)}"
    if not cpu_tensors.limit(owner, wanted, name):
        with _limited_process(device, wanted):
            yield
        return
    try:
        yield
    finally:
        cpu_tensors.limit(owner, None, name)


@contextmanager
def _limited_process(device: Cpu, wanted: int) -> Iterator[None]:
    held = process_figure("VmData:")
    if held is None:
        raise ConfigError(
            explain_error(
                "memory.limit(…) on a CPU",
                f"the library that counts tensors cannot be built, and {sys.platform} has no memory limit per process "
                "that can be removed again",
                "install a C++ compiler",
            )
        )
    warn(
        explain_error(
            "memory.limit(…) on a CPU",
            "the library that counts tensors cannot be built, so the limit is the operating system's, which counts all "
            "memory of the process",
            "install a C++ compiler",
        ),
        stacklevel=5,
    )
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = held + max(0, wanted - device.allocated(0))
    if before[1] != resource.RLIM_INFINITY:
        most = min(most, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


cpu_tensors.count_by(cpu_memory.start)


def _target() -> Real:
    return target_of(translator.host if translator.active else this_host())


def _free_and_total(device: Real) -> tuple[int, int]:
    """Free and total memory of the device, reduced to the limit of this process."""
    index = device.current()
    free, total = device.free_and_total(index)
    if isinstance(device, Cpu):
        most = cpu_tensors.most
        return (free, total) if most is None else (max(0, min(free, most - device.allocated(index))), min(total, most))
    allowed = min(total, int(device.describe(index).total_memory * _share(device, index)))
    return max(0, min(free, allowed - device.reserved(index))), allowed
