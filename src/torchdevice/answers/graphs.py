"""CUDA graphs: capture runs the operators once and records them, replay runs them again on the same tensors.

As on CUDA, capture does not change tensors that existed before, nor generators: their contents are restored at its end.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from torchdevice._torch import core, dispatcher
from torchdevice.answers.device import Device, Graph, PoolId, Table
from torchdevice.answers.devices import WRONG_THREAD, accelerator_error
from torchdevice.errors import CudaOnlyError, explain_error

# torch's words.
REPLAYED_IN_CAPTURE = (
    "Cannot prepare for replay during capturing stage. during CUDA graph capture. If you need this call to be "
    "captured, please file an issue. Current cudaStreamCaptureStatus: cudaStreamCaptureStatusActive"
)

_capture = threading.local()


class _Step(NamedTuple):
    """One recorded call. Its tensors share memory with those of the capture, but keep the shapes that they had then."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    made: list[torch.Tensor | None]  # its new tensors; None stands for a result that is memory of an argument
    works: bool  # whether it starts work of other threads, as collectives do
    grad_enabled: bool  # some kernels return more if it is

    def run(self) -> Any:
        """Call the operator again, and copy the results to the tensors that it made the first time."""
        if torch.is_grad_enabled() is not self.grad_enabled:
            torch.set_grad_enabled(self.grad_enabled)
        result = self.op(*self.args, **self.kwargs)
        for static, new in zip(self.made, core.tensors_in(result), strict=True):
            if static is None:
                continue
            if not static.is_nested and static.shape != new.shape:
                raise RuntimeError(
                    explain_error(
                        f"a graph with {self.op} was replayed",
                        f"its result had the shape {tuple(static.shape)} during the capture and has {tuple(new.shape)} "
                        "now; CUDA does not capture operators whose result has a size that depends on data",
                        "call it before the capture, or replace it by one of a fixed size, such as torch.where",
                    )
                )
            static.copy_(new)
        return result


class Recorder(core.DispatchMode):
    """Receives every operator below autograd and records those that compute or write."""

    def __init__(self, generators: Iterable[torch.Generator], target: str) -> None:
        super().__init__()
        self.steps: list[_Step] = []
        self._beside_cpu = target != "cpu"
        # By storage: a tensor of it, and the bytes that the steps use.
        self._needed: dict[int, tuple[torch.Tensor, int]] = {}
        self._made: set[int] = set()
        self._allocated: list[torch.Tensor] = []  # also made, but no step fills it
        self._kept: set[int] = set()
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._states: dict[torch.Generator, torch.Tensor] = {}
        for generator in generators:
            self._keep_state(generator)

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(map(dispatcher.handles_operators, types)):
            return NotImplemented  # such a class calls operators on the tensors that it holds, which are received here
        kwargs = kwargs or {}
        if self._beside_cpu and _is_work_of_cpu((*args, *kwargs.values())):
            return op(*args, **kwargs)  # a graph has no work of the CPU, and a capture does not undo it
        effects = dispatcher.effects_of(op)
        for tensor in effects.written(args, kwargs):
            self._keep(tensor)
        for value in (*args, *kwargs.values()):
            if isinstance(value, core.RealGenerator):
                self._keep_state(value)
        result = op(*args, **kwargs)
        if self._beside_cpu and _is_work_of_cpu((*args, *kwargs.values(), result)):
            return result
        if effects.only_allocates:
            self._allocated += core.tensors_in(result)
            self._made.update(map(core.memory_key, core.tensors_in(result)))
        elif not effects.only_reshapes:
            self._record(op, args, kwargs, result, effects.is_view)
        return result

    def _record(self, op: Any, args: Any, kwargs: dict[str, Any], result: Any, is_view: bool) -> None:
        # Schemas do not tell whether a result is new: `reshape` may copy, and `_unsafe_view` does not.
        older = {core.memory_key(tensor) for tensor in core.tensors_in((*args, *kwargs.values()))}
        results = core.tensors_in(result)
        new = [core.memory_key(tensor) not in older and not core.is_constant_zero(tensor) for tensor in results]
        if is_view and not any(new):
            return
        keeps_numbers = self._beside_cpu and op not in _COPIES
        # An argument that is given twice stays one tensor.
        same = functools.cache(_with_its_number if keeps_numbers else core.same_memory)
        step = _Step(
            op,
            core.replacing_tensors(tuple(args), same),
            {name: core.replacing_tensors(value, same) for name, value in kwargs.items()},
            [same(tensor) if is_new else None for tensor, is_new in zip(results, new, strict=True)],
            bool(dispatcher.works_in(result)),
            torch.is_grad_enabled(),
        )
        self.steps.append(step)
        for tensor in core.tensors_in([step.args, *step.kwargs.values(), step.made]):
            key, needed = core.memory_key(tensor), core.extent(tensor)
            if needed > self._needed.get(key, (tensor, 0))[1]:
                self._needed[key] = tensor, needed
        self._made.update(core.memory_key(tensor) for tensor, is_new in zip(results, new, strict=True) if is_new)

    def _keep(self, tensor: torch.Tensor) -> None:
        key = core.memory_key(tensor)
        if key not in self._made and key not in self._kept:
            self._kept.add(key)
            whole = core.whole_memory(tensor)
            self._before.append((whole, whole.clone()))

    def _keep_state(self, generator: torch.Generator) -> None:
        if generator not in self._states:
            self._states[generator] = generator.get_state()

    def finish(self) -> None:
        """Restore the contents that tensors had before the capture, and the states of generators."""
        with dispatcher.below_autograd_and_autocast():
            for tensor, before in self._before:
                if core.whole_memory(tensor).numel() >= before.numel():  # else its memory was freed
                    tensor.copy_(before)
        self._before.clear()
        for generator, state in self._states.items():
            generator.set_state(state)
        self._states.clear()

    def replay(self) -> None:
        """Run every step again, in order."""
        for tensor, needed in self._needed.values():
            if (left := tensor.untyped_storage().nbytes()) < needed:
                raise RuntimeError(
                    explain_error(
                        "a graph was replayed after memory of its capture was released",
                        f"a storage of at least {needed} bytes has {left} bytes now",
                        "keep the tensors that a graph uses, or capture again",
                    )
                )
        works: list[Any] = []
        with torch.no_grad(), dispatcher.below_autograd_and_autocast():
            for step in self.steps:
                if works and not step.works:
                    _wait(works)
                result = step.run()
                works += dispatcher.works_in(result) if step.works else ()
            _wait(works)


_COPIES = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)  # from memory of the CPU, as it is then


def _is_work_of_cpu(values: Any) -> bool:
    tensors = core.tensors_in(values)
    return bool(tensors) and all(tensor.device.type == "cpu" for tensor in tensors)


def _with_its_number(tensor: torch.Tensor) -> torch.Tensor:
    """A CUDA kernel receives the value of a number on the CPU, so a graph keeps it."""
    if tensor.dim() == 0 and tensor.device.type == "cpu" and tensor.layout is torch.strided:
        return tensor.clone()
    return core.same_memory(tensor)


def _wait(works: list[Any]) -> None:
    while works:
        works.pop(0).wait()


class Recording:
    """A captured graph of a device whose operators are recorded in Python."""

    def __init__(self, generators: Iterable[torch.Generator], target: str) -> None:
        self._generators = generators  # those from which operators draw by default
        self._target = target
        self._recorder: Recorder | None = None

    def begin(self, pool: PoolId) -> None:
        self._recorder = Recorder(self._generators, self._target)
        self._recorder.__enter__()
        _capture.recorder = self._recorder

    def end(self) -> None:
        recorder = self._recorder
        assert recorder is not None
        mine = recorder is getattr(_capture, "recorder", None)
        if not mine:
            said = "CUDA error: attempt to terminate a thread-local capture sequence from another thread"
            raise accelerator_error(said, WRONG_THREAD)
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
        return [str(step.op) for step in self._recorder.steps] if self._recorder is not None else []


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
            if device.capturing():
                raise RuntimeError(REPLAYED_IN_CAPTURE)
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
