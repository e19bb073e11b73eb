"""Replacements for the C functions of torch.mps."""

from __future__ import annotations

import itertools
from typing import Any

from torchdevice.answers.device import Device, Table, constant, nothing, refusal
from torchdevice.answers.streams import EventError


class _Events:
    """The events of torch.mps. torch identifies a Metal event by a number; here each number maps to a `Clock`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._numbers = itertools.count(1)
        self._clocks: dict[int, Any] = {}
        self._recorded: set[int] = set()

    def acquire(self, timing: bool) -> int:
        number = next(self._numbers)
        self._clocks[number] = self._device.clock(timing)
        return number

    def release(self, number: int) -> None:
        self._clocks.pop(number, None)
        self._recorded.discard(number)

    def record(self, number: int) -> None:
        self._clocks[number].record(None)
        self._recorded.add(number)

    def wait(self, number: int) -> None:
        self._clocks[number].wait(None)

    def query(self, number: int) -> bool:
        return bool(self._clocks[number].query())

    def synchronize(self, number: int) -> None:
        self._clocks[number].synchronize()

    def elapsed(self, start: int, end: int) -> float:
        if not {start, end} <= self._recorded:
            raise EventError("Both events must be recorded before calculating elapsed time.")
        return float(self._clocks[start].milliseconds_to(self._clocks[end]))


def mps_stream_base(base: Any) -> type:
    """The base class for `Stream` of torch.mps. It makes a new stream, or the stream with a given number."""

    class MPSStreamBase(base):
        def __new__(cls, *, stream_id: int | None = None) -> Any:
            return base.__new__(cls, stream_id=stream_id)

    return MPSStreamBase


def mps_functions(device: Device, stream: type) -> Table:
    """The C functions of torch.mps. `stream` is the base of its class `Stream`, which exists since torch 2.15."""
    events = _Events(device)
    metal = ("_mps_startCapture", "_mps_stopCapture")
    return {
        "_has_mps": True,
        "_mps_is_available": constant(True),
        "_mps_is_in_bad_fork": lambda: device.lost_by_fork(),
        "_mps_get_default_generator": lambda: device.generator(0),
        "_mps_get_name": lambda: device.describe(0).name,
        "_mps_get_core_count": lambda: device.describe(0).cores,
        "_mps_deviceSynchronize": lambda: device.synchronize(),
        "_mps_emptyCache": lambda: device.empty_cache(),
        "_mps_setMemoryFraction": lambda fraction: device.set_fraction(fraction or 1.0, 0),  # 0: no limit
        "_mps_currentAllocatedMemory": lambda: device.allocated(device.current()),
        "_mps_driverAllocatedMemory": lambda: device.reserved(device.current()),
        "_mps_recommendedMaxMemory": lambda: device.describe(device.current()).total_memory,
        "_mps_getCurrentStream": lambda: stream(stream_id=device.stream(device.current())),
        "_mps_setStream": lambda chosen: device.set_stream(chosen.stream_id, device.current()),
        "_mps_acquireEvent": events.acquire,
        "_mps_releaseEvent": events.release,
        "_mps_recordEvent": events.record,
        "_mps_waitForEvent": events.wait,
        "_mps_queryEvent": events.query,
        "_mps_synchronizeEvent": events.synchronize,
        "_mps_elapsedTimeOfEvents": events.elapsed,
        "_mps_profilerStartTrace": nothing,
        "_mps_profilerStopTrace": nothing,
        "_mps_isCapturing": constant(False),
        "_mps_isCaptureEnabled": constant(False),  # Metal frame captures need Xcode
        **{name: refusal(name, "Metal's frame capture needs a Mac with Xcode") for name in metal},
    }


def mps_names() -> Table:
    """Names in the modules of torch.mps that are not C functions. torch sets the generator on first use."""
    return {"_default_mps_generator": None, "device_count": constant(1)}
