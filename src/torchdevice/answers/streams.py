"""Streams and events: the bases on which torch's own `Stream` and `Event` classes are rebuilt, and the current stream.

A target with streams of its own lends them. Elsewhere a stream is an ordered stand-in: all work goes to the device in
the order in which it was submitted, so everything that streams promise holds, except that nothing overlaps.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import torch

from torchdevice._torch.core import RealDevice, RealEvent, RealStream, stream_type_number
from torchdevice.answers.devices import Table
from torchdevice.answers.real import Target

PRIORITIES = (0, -5)


class EventError(ValueError, RuntimeError):
    """What CUDA's events raise: a ValueError in later versions of torch, a RuntimeError in earlier ones."""


class Streams:
    """The streams of one target: numbers, priorities, and which one is current in this thread."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.type_number = stream_type_number(target.type)
        self._numbers = itertools.count(1)
        self._priorities: dict[int, int] = {}
        self._local = threading.local()

    def new(self, priority: int) -> int:
        """The number of a new stream; a priority outside the range means the nearest one inside."""
        number = next(self._numbers)
        self._priorities[number] = max(PRIORITIES[1], min(PRIORITIES[0], priority))
        return number

    def priority(self, number: int) -> int:
        return self._priorities.get(number, 0)

    def current(self, index: int) -> int:
        if self.target.native_streams:
            return int(torch.accelerator.current_stream(index).stream_id)
        return int(getattr(self._local, "current", {}).get(index, 0))

    def set_current(self, number: int, index: int) -> None:
        if self.target.native_streams:
            self.target.select(index)
            torch.accelerator.set_stream(RealStream(stream_id=number, device_index=index, device_type=self.type_number))
        else:
            self._local.current = {**getattr(self._local, "current", {}), index: number}


def stream_base(streams: Streams, handle: str, note: Callable[[], None]) -> type:
    """What torch's `Stream` is rebuilt on; `handle` is the raw stream's attribute: `cuda_stream`, `sycl_queue`."""
    target = streams.target
    # The CPU has no index (tensors report `cpu`), so its streams have none either.
    place = -1 if target.type == "cpu" else None

    class StreamBase(RealStream):
        def __new__(
            cls,
            priority: int = 0,
            stream_id: int | None = None,
            device_index: int | None = None,
            device_type: int = 0,
            stream_ptr: int = 0,
        ) -> Any:
            index = target.current() if device_index is None else device_index
            if stream_id is None:
                note()
            if stream_id is None and not stream_ptr and target.native_streams:
                return RealStream.__new__(cls, device=RealDevice(target.type, index), priority=priority)
            if stream_id is None:
                stream_id = stream_ptr or streams.new(priority)
            return RealStream.__new__(
                cls,
                stream_id=stream_id,
                device_index=index if place is None else place,
                device_type=streams.type_number,
            )

        def __init__(self, *_: Any, **__: Any) -> None:
            """Everything is in `__new__`, as in C."""

        @property
        def device_index(self) -> int:
            return max(0, super().device_index)

        @property
        def priority(self) -> int:
            return streams.priority(self.stream_id)

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return PRIORITIES

        def query(self) -> bool:
            if target.native_streams:
                return bool(super().query())
            clock = target.clock(False)
            clock.record(self)
            return clock.query()

        def synchronize(self) -> None:
            if target.native_streams:
                super().synchronize()
            else:
                target.synchronize()

        def __enter__(self) -> Any:
            former = self.__dict__.setdefault("_former", [])
            former.append((streams.current(self.device_index), self.device_index))
            streams.set_current(self.stream_id, self.device_index)
            return self

        def __exit__(self, *_: object) -> None:
            streams.set_current(*self.__dict__["_former"].pop())

    setattr(StreamBase, handle, property(lambda self: self.stream_id))
    return StreamBase


def event_base(streams: Streams, handle: str, note: Callable[[], None]) -> type:
    """What torch's `Event` is rebuilt on: a clock of the target, with CUDA's rules on when it may be read."""
    target = streams.target
    numbers = itertools.count(1)

    class EventBase(RealEvent):
        def __new__(
            cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
        ) -> Any:
            note()
            event = RealEvent.__new__(cls, RealDevice(target.type), enable_timing=enable_timing, blocking=blocking)
            event._timed, event._number, event._clock = enable_timing, 0, None
            return event

        _timed: bool
        _number: int
        _clock: Any

        def __init__(self, *_: Any, **__: Any) -> None:
            """Everything is in `__new__`, as in C."""

        @property
        def device(self) -> Any:
            return target.device()

        @classmethod
        def from_ipc_handle(cls, device: Any, handle: bytes) -> Any:
            raise RuntimeError("CUDA IPC is not supported on this device: events cannot cross processes")

        def ipc_handle(self) -> bytes:
            raise RuntimeError("CUDA IPC is not supported on this device: events cannot cross processes")

        def record(self, stream: Any = None) -> None:
            self._clock = target.clock(self._timed)
            self._clock.record(stream)
            self._number = self._number or next(numbers)

        def wait(self, stream: Any = None) -> None:
            if self._clock is not None:
                self._clock.wait(stream)

        def query(self) -> bool:
            return self._clock is None or self._clock.query()

        def synchronize(self) -> None:
            if self._clock is not None:
                self._clock.synchronize()

        def elapsed_time(self, end_event: Any) -> float:
            if not (self._timed and end_event._timed):
                raise EventError("Both events must be created with argument 'enable_timing=True'.")
            if self._clock is None or end_event._clock is None:
                raise EventError("Both events must be recorded before calculating elapsed time.")
            return float(self._clock.milliseconds_to(end_event._clock))

    setattr(EventBase, handle, property(lambda self: self._number))
    return EventBase


def stream_functions(kind: str, streams: Streams) -> Table:
    """The C functions on streams."""

    def at(index: int) -> int:
        return streams.target.current() if index < 0 else index

    def current(index: int) -> tuple[int, int, int]:
        return streams.current(at(index)), at(index), streams.type_number

    def default(index: int) -> tuple[int, int, int]:
        return 0, at(index), streams.type_number

    def external(pointer: int, index: int) -> tuple[int, int, int]:
        return pointer, at(index), streams.type_number

    def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
        streams.set_current(stream_id, device_index)

    return {
        f"_{kind}_getCurrentStream": current,
        f"_{kind}_getDefaultStream": default,
        f"_{kind}_getStreamFromExternal": external,
        f"_{kind}_setStream": set_stream,
        f"_{kind}_getCurrentRawStream": lambda index: streams.current(at(index)),
    }
