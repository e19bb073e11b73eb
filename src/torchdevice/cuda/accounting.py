"""Memory of devices that keep no figures as CUDA does: what tensors hold now, and the most they held.

Nothing here runs while nobody asks: a figure of "now" is counted when it is asked for. The most since the last reset
comes from the operating system on the CPU, and from a sampling thread (started by the first question) elsewhere.
"""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from torchdevice import compat

SAMPLE_SECONDS = 0.01
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


class Peak(Protocol):
    """The most that was held since the last reset; `now` is the figure of this moment."""

    def allocated(self, now: int) -> int: ...
    def reserved(self, now: int) -> int: ...
    def reset(self, now: int) -> None: ...


def tensor_bytes(device_type: str) -> int:
    """Bytes of the storages of all tensors of a device type that Python or the autograd graph holds, each once."""
    kinds = _tensor_classes()
    seen: dict[int, int] = {}
    known = [candidate for candidate in gc.get_objects() if type(candidate) in kinds]
    for tensor in (*known, *compat.held_by_autograd(known)):
        storage = compat.storage_of(tensor) if tensor.device.type == device_type else None
        if storage is not None:
            seen[storage.data_ptr()] = storage.nbytes()  # an empty storage has no address and no bytes
    return sum(seen.values())


def _tensor_classes() -> frozenset[type]:
    """torch.Tensor and its subclasses, without those that wrap other tensors (fake, functional: no memory)."""
    found: set[type] = set()
    pending: list[type] = [compat.RealTensor]
    while pending:
        kind = pending.pop()
        if kind not in found and not compat.wraps_tensors(kind):
            found.add(kind)
            pending.extend(type.__subclasses__(kind))
    return frozenset(found)


class ProcessMemory:
    """The process as the operating system sees it: the kernel keeps its peak, at no cost to us."""

    def __init__(self) -> None:
        self._start = _resident()
        self._at_reset = (self._start, 0)  # resident bytes and tensors' bytes
        self._seen = 0

    def grown(self) -> int:
        """What the process holds from the system beyond what it held at the start."""
        return max(0, _resident() - self._start)

    def allocated(self, now: int) -> int:
        """What tensors held at the reset, and what the process grew by at its highest since."""
        resident, held = self._at_reset
        self._seen = max(self._seen, now, held + max(0, _high_water() - resident))
        return self._seen

    def reserved(self, now: int) -> int:
        return max(now, _high_water() - self._start)

    def reset(self, now: int) -> None:
        """Begin anew from here, if the kernel can (Linux): else only figures of moments when somebody asked count."""
        _clear_high_water()
        self._at_reset = (_high_water(), now)
        self._seen = now


def _status(field: str) -> int | None:
    """A figure of /proc/self/status in bytes; None where there is no such file."""
    if not _STATUS.exists():
        return None
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) << 10
    return None


def _resident() -> int:
    found = _status("VmRSS:")
    if found is None:
        import psutil  # takes longer to import than everything else here

        found = psutil.Process().memory_info().rss
    return found


def _high_water() -> int:
    found = _status("VmHWM:")
    return _resident() if found is None else found


def _clear_high_water() -> None:
    try:
        _CLEAR.write_text("5")  # "reset the peak resident set size", see proc(5)
    except OSError:  # no such file (macOS), or a sandbox that does not allow it
        return


class SampledPeak:
    """The most that was seen: at every question, and every few milliseconds in between once somebody has asked."""

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
    """The sampler of these readings: one a process."""
    return SampledPeak(allocated, reserved)


process_memory = ProcessMemory()
