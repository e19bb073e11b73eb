"""Base classes for torch.cuda's and torch.xpu's Stream, Event and Graph, which are C in a torch built for them.

torch's own Python subclasses run on top of these. A stream is a name and an event a time stamp: work is done at once.
"""

from __future__ import annotations

from typing import Any

import torch

from torchdevice._torch.core import stream_type_number
from torchdevice.virtual.library import Library

HIGHEST = -5  # of a stream's priorities, as on CUDA


def stream_base(device: str, handle: str) -> type:
    """`handle` is the attribute with the raw stream: `cuda_stream`, `sycl_queue`."""

    class StreamBase(torch.Stream):
        def __new__(
            cls,
            priority: int = 0,
            stream_id: int | None = None,
            device_index: int = 0,
            device_type: int = 0,
            stream_ptr: int = 0,
        ) -> Any:
            if stream_id is None and not stream_ptr:
                made = torch.Stream.__new__(cls, device=device, priority=priority)
                made._priority = max(HIGHEST, min(priority, 0))
                return made
            kind = device_type or stream_type_number(device)
            return torch.Stream.__new__(
                cls,
                stream_id=stream_ptr if stream_id is None else stream_id,
                device_index=device_index,
                device_type=kind,
            )

        def __init__(self, *arguments: Any, **options: Any) -> None:
            pass

        @property
        def priority(self) -> int:
            return getattr(self, "_priority", 0)

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return (0, HIGHEST)

    setattr(StreamBase, handle, property(lambda self: self.stream_id))
    StreamBase.__name__ = StreamBase.__qualname__ = f"_{device.capitalize()}StreamBase"
    return StreamBase


def event_base(lib: Library, device: str, handle: str) -> type:
    class EventBase(torch.Event):
        def __new__(
            cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
        ) -> Any:
            event = torch.Event.__new__(cls, device, enable_timing=enable_timing, blocking=blocking)
            event._timed = enable_timing
            return event

        def __init__(self, *arguments: Any, **options: Any) -> None:
            pass

        def elapsed_time(self, end_event: Any) -> float:
            # torch.Event's own accepts no subclass of torch.Event as its argument.
            if not (self._timed and end_event._timed):
                raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
            return lib.elapsed(self.event_id, end_event.event_id)

        _timed: bool

    setattr(EventBase, handle, property(lambda self: self.event_id))
    EventBase.__name__ = EventBase.__qualname__ = f"_{device.capitalize()}EventBase"
    return EventBase


def graph_base(lib: Library, name: str) -> type:
    """Capture notes every operator (and takes back what it wrote); replay runs them again into the same tensors."""

    class GraphBase:
        def __new__(cls, keep_graph: bool = False) -> Any:
            graph = object.__new__(cls)
            graph._id = 0
            return graph

        _id: int

        def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
            self._id = lib.capture_begin()

        def capture_end(self) -> None:
            lib.call("capture_end", self._id)

        def instantiate(self) -> None:
            pass

        def replay(self) -> None:
            if not self._id:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            lib.call("capture_replay", self._id)

        def reset(self) -> None:
            if self._id:
                lib.call("capture_drop", self._id)
            self._id = 0

        def __del__(self) -> None:
            self.reset()

        def pool(self) -> tuple[int, int]:
            return (self._id, 0)

        def register_generator_state(self, generator: torch.Generator) -> None:
            pass

        def enable_debug_mode(self) -> None:
            pass

        def debug_dump(self, path: str) -> None:
            pass

        def raw_cuda_graph(self) -> int:
            return self._id

        raw_cuda_graph_exec = raw_xpu_graph = raw_xpu_graph_exec = raw_cuda_graph

    GraphBase.__name__ = GraphBase.__qualname__ = name
    return GraphBase
