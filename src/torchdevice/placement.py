"""Chooses the device with the most free memory for requests without an index, once per process.

    import torchdevice.placement as placement

    torchdevice.activate(place="free")       # or: torchdevice run --place free train.py
    print(placement.candidates())
    model.to(placement.most_free())

The choice becomes the current device of the thread that first uses the accelerator, and of threads that start later, so
that `cuda`, `.cuda()` and all of torch.cuda agree on it. Requests with an index are not changed. docs/policy.md has the
reasons.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torchdevice._torch.core import RealDevice, cuda_memory_by_nvml, when_initialized
from torchdevice.policy.hosts import Host, this_host
from torchdevice.reporting.units import size
from torchdevice.translate.engine import Replacement, apply, dress

__all__ = ["Candidate", "candidates", "most_free"]

# Set by torchrun and other launchers, which give each process its own device.
LAUNCHED = "LOCAL_RANK"


@dataclass(frozen=True)
class Candidate:
    """One accelerator with its memory in bytes: `device`, `free` and `total`."""

    device: torch.device
    free: int
    total: int

    def __str__(self) -> str:
        return f"{self.device} ({size(self.free)} of {size(self.total)} free)"


def candidates() -> list[Candidate]:
    """Returns the accelerators of this machine with their memory; an empty list if the CPU is the only device."""
    return _candidates(this_host())


def most_free() -> torch.device:
    """Returns the accelerator with the most free memory, of equal ones the first; the CPU if there is none."""
    found = candidates()
    return _most_free(found).device if found else RealDevice("cpu")


def _candidates(host: Host) -> list[Candidate]:
    if not host.accelerated:
        return []
    module = torch.get_device_module(host.type)
    if not hasattr(module, "mem_get_info"):  # MPS: one device
        free, total = (
            module.recommended_max_memory() - module.driver_allocated_memory(),
            module.recommended_max_memory(),
        )
        return [Candidate(RealDevice(host.type, 0), max(0, free), total)]
    return [Candidate(RealDevice(host.type, index), *_memory(module, index)) for index in range(host.count)]


def _memory(module: Any, index: int) -> tuple[int, int]:
    """Free and total bytes. NVML is asked first: CUDA would reserve memory on each device that it is asked about."""
    free, total = (module is torch.cuda and cuda_memory_by_nvml(index)) or module.mem_get_info(index)
    return int(free), int(total)


def _most_free(found: list[Candidate]) -> Candidate:
    return max(found, key=lambda each: (each.free, -each.device.index))


class Placement:
    """The choice of a process. `chosen` is None until the accelerator is used, or if nothing is chosen.

    Threads begin on device 0, whatever the current device of their parent is. Those that start after the choice begin
    on the chosen device.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self._ended = False
        self._process = os.getpid()
        self._before = 0
        self.chosen: Candidate | None = None

    def apply(self) -> Callable[[], None]:
        """Choose at the first use of the accelerator, or now if it is in use. Returns the undo."""
        if self.host.count == 1 or LAUNCHED in os.environ:
            return lambda: None
        self._ended = False
        path, owner = "threading.Thread.start", threading.Thread
        wrapper = dress(self._starting_there(owner.start), owner.start, path)
        applied = apply([Replacement(path, owner, "start", wrapper)])
        when_initialized(self.host.type, self._choose)

        def undo() -> None:
            self._ended = True
            applied.undo()
            if self.chosen is not None and torch.accelerator.current_device_index() == self.chosen.device.index:
                torch.accelerator.set_device_index(self._before)

        return undo

    def _choose(self) -> None:
        if self._ended:
            return
        self._before = torch.accelerator.current_device_index()
        self.chosen = self.chosen or _most_free(_candidates(self.host))
        torch.accelerator.set_device_index(self.chosen.device.index)

    def _starting_there(self, start: Callable[..., Any]) -> Callable[..., Any]:
        def begin(thread: threading.Thread) -> None:
            if self.chosen is not None and self._may_set():
                own = vars(thread).get("run")
                thread.run = functools.partial(self._run_there, thread, own)  # type: ignore[method-assign]
            start(thread)

        return begin

    def _run_there(self, thread: threading.Thread, own: Callable[[], None] | None) -> None:
        del thread.run  # otherwise the thread would refer to itself
        if own is not None:
            thread.run = own  # type: ignore[method-assign]
        if self.chosen is not None and self._may_set():
            torch.accelerator.set_device_index(self.chosen.device.index)
        thread.run()

    def _may_set(self) -> bool:
        """A forked child cannot use the device of its parent. Its threads run without it."""
        return not self._ended and os.getpid() == self._process
