"""CUDA graphs: capture runs the operators once and records them, replay runs them again on the same tensors.

As on CUDA, capture does not change tensors that existed before: their contents are restored at its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from torchdevice._torch import core, dispatcher
from torchdevice.answers.device import Device, Graph, PoolId, Table
from torchdevice.errors import CudaOnlyError, explain_error

_capture = threading.local()


class Recorder(core.DispatchMode):
    """Receives every operator below autograd and records those that compute or write."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[torch.Tensor]]] = []
        self._made: set[int] = set()
        self._held: list[Any] = []
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._kept: set[int] = set()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        effects = dispatcher.effects_of(op)
        for tensor in effects.written(args, kwargs):
            self._keep(tensor)
        result = op(*args, **kwargs)
        if effects.is_view:
            return result
        fresh = [] if effects.writes else core.tensors_in(result)
        self.steps.append((op, args, kwargs, fresh))
        for tensor in fresh:
            self._made.add(core.storage_key(tensor))
            self._held.append(tensor)
        return result

    def _keep(self, tensor: torch.Tensor) -> None:
        key = core.storage_key(tensor)
        if key not in self._made and key not in self._kept:
            self._kept.add(key)
            whole = core.whole_storage(tensor)
            self._before.append((whole, whole.clone()))

    def finish(self) -> None:
        """Restore the contents that tensors had before the capture."""
        for tensor, before in self._before:
            tensor.copy_(before)
        self._before.clear()

    def replay(self) -> None:
        """Run every step again. The results of a step are copied to the tensors that it made the first time."""
        with torch.no_grad():
            for op, args, kwargs, made in self.steps:
                result = op(*args, **kwargs)
                for static, new in zip(made, core.tensors_in(result), strict=bool(made)) if made else ():
                    static.copy_(new)


class Recording:
    """A captured graph of a device whose operators are recorded in Python."""

    def __init__(self) -> None:
        self._recorder: Recorder | None = None

    def begin(self, pool: PoolId) -> None:
        self._recorder = Recorder()
        self._recorder.__enter__()
        _capture.recorder = self._recorder

    def end(self) -> None:
        recorder = self._recorder
        assert recorder is not None
        mine = recorder is getattr(_capture, "recorder", None)
        if not mine:
            raise RuntimeError("CUDA error: attempt to terminate a thread-local capture sequence from another thread")
        _capture.recorder = None
        recorder.__exit__(None, None, None)
        recorder.finish()

    def replay(self) -> None:
        assert self._recorder is not None
        self._recorder.replay()

    def drop(self) -> None:
        """Discard the steps. A capture in progress in this thread ends."""
        if self._recorder is not None and self._recorder is getattr(_capture, "recorder", None):
            self.end()
        self._recorder = None

    def __del__(self) -> None:
        self.drop()

    def steps(self) -> list[str]:
        return [str(op) for op, *_ in self._recorder.steps] if self._recorder is not None else []


def capturing() -> bool:
    """Whether this thread is between `Recording.begin` and `Recording.end`."""
    return getattr(_capture, "recorder", None) is not None


def graph_base(label: str, device: Device, note: Callable[[], None]) -> type:
    """The base class for torch's `CUDAGraph` or `XPUGraph`."""

    class GraphBase:
        def __new__(cls, keep_graph: bool = False) -> Any:
            note()
            graph = object.__new__(cls)
            graph._captured, graph._pool, graph._ended = None, (next(device.pool_numbers), 0), False
            return graph

        _captured: Graph | None
        _pool: tuple[int, int]
        _ended: bool

        def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
            if device.capturing():
                raise RuntimeError(f"{label}: a capture is underway already; captures cannot be nested.")
            if not device.stream(device.current()):
                raise RuntimeError(
                    f"{label.removesuffix('Graph')} graphs must be captured on a non-default stream. (However, after "
                    "capture, it's ok to replay them on the default stream.)"
                )
            self._captured, self._ended = device.graph(), False
            if pool is not None:
                self._pool = pool
            self._captured.begin(self._pool)

        def capture_end(self) -> None:
            self._end()

        # From 2.14 on, torch's own `capture_end` ends a capture in two calls.
        def capture_end_pre(self) -> None:
            self._end()

        def capture_end_post(self) -> None:
            """Does nothing: `capture_end_pre` has done all the work."""

        def _end(self) -> None:
            if self._captured is None or self._ended:
                raise RuntimeError(f"{label}::capture_end without a preceding capture_begin.")
            self._captured.end()
            self._ended = True

        @property
        def _has_graph_exec(self) -> bool:  # newer versions of torch read it before a replay
            return self._ended

        def instantiate(self) -> None:
            """Does nothing: recorded steps need no preparation."""

        def replay(self) -> None:
            if self._captured is None or not self._ended:
                raise RuntimeError(f"Called {label}::replay without a preceding successful capture.")
            self._captured.replay()

        def reset(self) -> None:
            if self._captured is not None:
                self._captured.drop()
            self._captured, self._ended = None, False

        def pool(self) -> tuple[int, int]:
            return self._pool

        def register_generator_state(self, generator: torch.Generator) -> None:
            """Does nothing: a replay draws from the device's generator and advances it."""

        def enable_debug_mode(self) -> None:
            """Does nothing: `debug_dump` needs no preparation."""

        def debug_dump(self, path: str) -> None:
            steps = self._captured.steps() if self._captured is not None else []
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(f"{step}\n" for step in steps)

        def raw_cuda_graph(self) -> int:
            raise CudaOnlyError(
                explain_error(
                    f"the raw graph of torch.cuda.{label} was requested",
                    "this graph is a list of operators and has no cudaGraph_t",
                    "use capture and replay, which work here, or run on a CUDA device",
                )
            )

        raw_cuda_graph_exec = raw_xpu_graph = raw_xpu_graph_exec = raw_cuda_graph

    return GraphBase


def graph_functions(kind: str, device: Device) -> Table:
    """Replacements for the C functions on graphs."""
    pool = "_graph_pool_handle" if kind == "cuda" else "_xpu_graph_pool_handle"
    return {
        f"_{kind}_isCurrentStreamCapturing": lambda: device.capturing(),
        pool: lambda: (0, next(device.pool_numbers)),
    }
