"""Streams and events: base classes for torch's `Stream` and `Event`, and the functions on the current stream.

On a device with native streams, these are used. Otherwise streams are simulated: all work runs in the order of
submission. This keeps every guarantee of streams, but work never overlaps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from torchdevice._torch.core import RealDevice, RealEvent, RealStream, stream_type_number
from torchdevice.answers.device import Device, Table


class EventError(ValueError, RuntimeError):
    """The error of CUDA's events. It is a ValueError in newer versions of torch and a RuntimeError in older ones."""


class Streams:
    """The streams of one device: numbers and priorities. `priorities`: the lowest and the highest."""

    def __init__(self, device: Device, priorities: tuple[int, int]) -> None:
        self.device = device
        self.priorities = priorities
        self.type_number = stream_type_number(device.type)
        self._priorities: dict[int, int] = {}

    def new(self) -> int:
        """The number of a new simulated stream."""
        return next(self.device.stream_numbers)

    def keep_priority(self, number: int, priority: int) -> None:
        """Stores a priority, clamped to the valid range."""
        lowest, highest = self.priorities
        self._priorities[number] = max(highest, min(lowest, priority))

    def priority(self, number: int) -> int:
        return self._priorities.get(number, 0)


def stream_base(streams: Streams, handle: str, note: Callable[[], None]) -> type:
    """The base class for torch's `Stream`. `handle`: the attribute with the raw stream (`cuda_stream`), if any."""
    device = streams.device
    # The CPU has no index (tensors report `cpu`), so its streams have none either.
    place = -1 if device.type == "cpu" else None

    class StreamBase(RealStream):
        def __new__(
            cls,
            priority: int = 0,
            stream_id: int | None = None,
            device_index: int | None = None,
            device_type: int = 0,
            stream_ptr: int = 0,
        ) -> Any:
            index = device.current() if device_index is None else device_index
            if stream_id is None:
                note()
                if priority > 0 and streams.priorities[0] == 0:  # only XPU has a priority below the default
                    raise RuntimeError(f"Expected cuda stream priority to be less than or equal to 0, got {priority}")
            if stream_id is None and not stream_ptr and device.own_streams:
                made = RealStream.__new__(cls, device=RealDevice(device.type, index), priority=priority)
                streams.keep_priority(made.stream_id, priority)
                return made
            if stream_id is None:
                stream_id = stream_ptr or streams.new()
                streams.keep_priority(stream_id, priority)
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
            return streams.priorities

        def query(self) -> bool:
            if device.own_streams:
                return bool(super().query())
            clock = device.clock(False)
            clock.record(self)
            return clock.query()

        def synchronize(self) -> None:
            if device.own_streams:
                super().synchronize()
            else:
                device.synchronize()

        def __enter__(self) -> Any:
            former = self.__dict__.setdefault("_former", [])
            former.append((device.current(), device.stream(self.device_index)))
            device.set_stream(self.stream_id, self.device_index)
            return self

        def __exit__(self, *_: object) -> None:
            current, stream = self.__dict__["_former"].pop()
            device.set_stream(stream, self.device_index)
            device.select(current)

    if handle:
        setattr(StreamBase, handle, property(lambda self: self.stream_id))
    return StreamBase


def event_base(device: Device, handle: str, note: Callable[[], None]) -> type:
    """The base class for torch's `Event`, with native events or a clock. CUDA's rules for reading times apply.

    A virtual mps waits for both events, as a Mac does, where CUDA refuses the time of work that runs.
    """
    return _own_event_base(device, handle, note) if device.own_events else _clock_event_base(device, handle, note)


def _check_timed(start: Any, end: Any) -> None:
    if not (start._timed and end._timed):
        raise EventError("Both events must be created with argument 'enable_timing=True'.")


def _own_event_base(device: Device, handle: str, note: Callable[[], None]) -> type:
    class EventBase(RealEvent):
        def __new__(
            cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
        ) -> Any:
            note()
            event = RealEvent.__new__(cls, device.type, enable_timing=enable_timing, blocking=blocking)
            event._timed = enable_timing
            return event

        _timed: bool

        def __init__(self, *_: Any, **__: Any) -> None:
            """Everything is in `__new__`, as in C."""

        @property
        def device(self) -> Any:
            return super().device if self.event_id else None  # an event has a device only after it was recorded

        def elapsed_time(self, end_event: Any) -> float:
            # The method of torch.Event does not accept a subclass of torch.Event as argument.
            _check_timed(self, end_event)
            try:
                return device.elapsed(self, end_event)
            except torch.AcceleratorError:
                raise
            except RuntimeError as error:
                raise EventError(str(error)) from None

    setattr(EventBase, handle, property(lambda self: self.event_id))
    return EventBase


def _clock_event_base(device: Device, handle: str, note: Callable[[], None]) -> type:
    numbers = itertools.count(1)

    class EventBase(RealEvent):
        def __new__(
            cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
        ) -> Any:
            note()
            event = RealEvent.__new__(cls, RealDevice(device.type), enable_timing=enable_timing, blocking=blocking)
            event._timed, event._number, event._clock = enable_timing, 0, None
            return event

        _timed: bool
        _number: int
        _clock: Any

        def __init__(self, *_: Any, **__: Any) -> None:
            """Everything is in `__new__`, as in C."""

        @property
        def device(self) -> Any:
            return device.place(device.current())

        @classmethod
        def from_ipc_handle(cls, device: Any, handle: bytes) -> Any:
            raise RuntimeError("CUDA IPC is not supported on this device: events cannot cross processes")

        def ipc_handle(self) -> bytes:
            raise RuntimeError("CUDA IPC is not supported on this device: events cannot cross processes")

        def record(self, stream: Any = None) -> None:
            self._clock = device.clock(self._timed)
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
            _check_timed(self, end_event)
            if self._clock is None or end_event._clock is None:
                raise EventError("Both events must be recorded before calculating elapsed time.")
            return float(self._clock.milliseconds_to(end_event._clock))

    setattr(EventBase, handle, property(lambda self: self._number))
    return EventBase


def stream_functions(kind: str, streams: Streams) -> Table:
    """Replacements for the C functions on streams."""
    device = streams.device

    def at(index: int) -> int:
        return device.current() if index < 0 else index

    def current(index: int) -> tuple[int, int, int]:
        return device.stream(at(index)), at(index), streams.type_number

    def default(index: int) -> tuple[int, int, int]:
        return 0, at(index), streams.type_number

    def external(pointer: int, index: int) -> tuple[int, int, int]:
        return pointer, at(index), streams.type_number

    def set_stream(stream_id: int, device_index: int, device_type: int) -> None:
        device.set_stream(stream_id, device_index)

    return {
        f"_{kind}_getCurrentStream": current,
        f"_{kind}_getDefaultStream": default,
        f"_{kind}_getStreamFromExternal": external,
        f"_{kind}_setStream": set_stream,
        f"_{kind}_getCurrentRawStream": lambda index: device.stream(at(index)),
    }
