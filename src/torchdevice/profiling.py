"""Measures for `run --profile`: time and memory per operator and per line of user code, and batches of data loaders.

Operators are measured by a callback of torch, in C++ and in all threads (`virtual/native/observe.cpp`). The line of an
operator that allocates memory or copies between devices is read when the operator ends. Times of lines are sampled: a
hundred times per second a thread reads which line of user code every other thread is running, and adds the time since
the last sample to it. The same thread records how much memory is in use.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torchdevice._torch.core import DATALOADER_ITERATOR, TORCH_FOLDER, RealTensor
from torchdevice.answers.counted import cpu_tensors
from torchdevice.errors import VirtualDeviceUnavailable
from torchdevice.fallback import route
from torchdevice.ledger import Fallback, FallbackTotals, Site
from torchdevice.reporting.collect import Event, Memory, Moment, Profile, Timed
from torchdevice.translate.engine import Function, Replacement, apply, dress
from torchdevice.translate.points import resolve_path
from torchdevice.virtual.build import OPERATOR_TIMES, load
from torchdevice.virtual.cpu_memory import Counted

INTERVAL = 0.01
MOST_MOMENTS = 400  # of a timeline; neighbours are merged to stay below
MOST_EVENTS = 500_000  # of a trace, per process; an event is about 140 bytes of the file

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_ELSEWHERE = os.path.join(_OURS, "fallback", "")
_STANDARD = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib"))
_INSTALLED = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("purelib", "platlib"))
_IMPORTING = "<frozen importlib._bootstrap"
_USER, _LIBRARY, _INNER, _WAITING = range(4)


class Profiler:
    """The profile of one process, from `start` to `stop`."""

    def __init__(self, traced: bool = False) -> None:
        """Must run before the session starts, because the session takes the executors from their table.

        `traced`: keep single calls, for a trace.
        """
        self._timer: ctypes.CDLL | None = None
        self._missing = ""
        self._traced = traced
        self._began = 0.0
        self._lines = _Lines()
        self._batches = _Batches()
        self._executors = dict(route.EXECUTORS)
        try:
            self._timer = _typed(load(OPERATOR_TIMES))
        except VirtualDeviceUnavailable as error:
            self._missing = f"Only operators that fell back were timed. {error}"
            return
        for name, execute in self._executors.items():
            route.EXECUTORS[name] = _labelled(name.encode(), execute, self._timer)

    def start(self, target: str) -> None:
        """Start measuring. The timeline shows the memory of `target`, a device type."""
        if self._timer is not None:
            counter = cpu_tensors.start_now()
            if isinstance(counter, Counted):
                self._timer.td_observe_memory(*counter.functions())
            kinds = ((TORCH_FOLDER, _OURS), _INSTALLED, _STANDARD)
            self._timer.td_observe_lines(*("\n".join(folders).encode() for folders in kinds))
            self._began = time.time()
            if self._traced:
                self._timer.td_observe_events(MOST_EVENTS)
            self._timer.td_observe()
            self._lines.timeline = _Timeline(self._timer, target, self._began)
        self._lines.start()

    def stop(self) -> None:
        """Stop measuring and restore the executors. The figures are kept."""
        route.EXECUTORS.update(self._executors)
        if self._timer is not None:
            self._timer.td_observe_stop()
        self._lines.stop()
        self._batches.stop()

    def profile(self, fallbacks: Mapping[Fallback, FallbackTotals]) -> Profile:
        """The figures so far. Without the C++ timer, only fallbacks have times per operator."""
        operators: dict[tuple[str, str], Timed] = {}
        operator_memory: dict[tuple[str, str], Memory] = {}
        line_memory: dict[Site, Memory] = {}
        events: list[Event] = []
        half = 0.0
        if self._timer is None:
            for fallback, totals in fallbacks.items():
                key = (fallback.operator, fallback.executor)
                operators[key] = operators.get(key, Timed()) + Timed(totals.calls, totals.seconds)
        else:
            for name, where, *figures in _rows(self._timer.td_observed()):
                calls, nanoseconds, allocated, held = map(int, figures)
                operators[name, where] = Timed(calls, nanoseconds / 1e9)
                if allocated:
                    operator_memory[name, where] = Memory(allocated, held)
            for file, line, *figures in _rows(self._timer.td_observed_lines()):
                line_memory[Site(file, int(line))] = Memory(*map(int, figures))
            for name, where, *figures in _rows(self._timer.td_observed_events()):
                thread, start, nanoseconds = map(int, figures)
                events.append(Event(name, where, os.getpid(), thread, self._began + start / 1e9, nanoseconds / 1e9))
            half = self._timer.td_observed_half() / 1e9
        lines, batches = self._lines, self._batches
        return Profile(
            operators,
            dict(lines.figures),
            lines.seconds,
            self._missing,
            half,
            batches.batches,
            batches.samples,
            operator_memory,
            line_memory,
            lines.timeline.all() if lines.timeline is not None else (),
            tuple(events),
        )


def _typed(timer: ctypes.CDLL) -> ctypes.CDLL:
    timer.td_observe_push.argtypes = [ctypes.c_char_p]
    timer.td_observe_memory.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    timer.td_observe_lines.argtypes = [ctypes.c_char_p] * 3
    timer.td_observe_events.argtypes = [ctypes.c_int64]
    timer.td_observed_held.argtypes = [ctypes.c_char_p]
    for name in ("td_observed", "td_observed_lines", "td_observed_events"):
        getattr(timer, name).restype = ctypes.c_char_p
    for name in ("td_observed_half", "td_observed_busy", "td_observed_held"):
        getattr(timer, name).restype = ctypes.c_int64
    return timer


def _rows(text: bytes) -> list[list[str]]:
    return [row.split("\t") for row in text.decode("utf-8", "replace").split("\n") if row]


def _labelled(label: bytes, execute: route.Executor, timer: ctypes.CDLL) -> route.Executor:
    """An executor whose whole time is attributed to the operator that it was called for."""

    def run(*args: Any) -> Any:
        timer.td_observe_push(label)
        try:
            return execute(*args)
        finally:
            timer.td_observe_pop()

    return run


class _Batches:
    """Counts what data loaders yield, in the process that iterates over them."""

    def __init__(self) -> None:
        self.batches = self.samples = 0
        owner = resolve_path(DATALOADER_ITERATOR)
        path = f"{DATALOADER_ITERATOR}.__next__"
        self._applied = apply([Replacement(path, owner, "__next__", self._counting(owner.__next__, path))])

    def stop(self) -> None:
        """Restore torch's method, unless a session has replaced it since."""
        self._applied.undo()

    def _counting(self, original: Function, path: str) -> Function:
        def __next__(iterator: Any) -> Any:  # noqa: N807
            batch = original(iterator)
            self.batches += 1
            self.samples += _length(batch)
            return batch

        return dress(__next__, original, path)


def _length(batch: Any) -> int:
    """The number of samples in a batch: the first dimension of its first tensor."""
    if isinstance(batch, RealTensor):
        return len(batch) if batch.dim() else 1
    values = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next(filter(None, map(_length, values)), 0)


class _Lines(threading.Thread):
    """Samples the lines of user code that threads are running."""

    def __init__(self) -> None:
        super().__init__(name="torchdevice profile", daemon=True)
        self.figures: dict[Site, Timed] = {}
        self.seconds = 0.0
        self.timeline: _Timeline | None = None
        self._ending = threading.Event()

    def run(self) -> None:
        main = threading.main_thread().ident
        last = time.perf_counter()
        while not self._ending.wait(INTERVAL):
            now = time.perf_counter()
            elapsed, last = now - last, now
            self.seconds += elapsed
            if self.timeline is not None:
                self.timeline.add(self.seconds)
            for thread, frame in sys._current_frames().items():
                if thread != self.ident:
                    self._add(frame, thread == main, elapsed)

    def stop(self) -> None:
        """Stop within one interval."""
        self._ending.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join()

    def _add(self, leaf: FrameType, is_main: bool, elapsed: float) -> None:
        if not is_main and _role(leaf) == _WAITING:  # a thread of a library that waits for work
            return
        line = _line(leaf)
        if line is None:
            return
        before = self.figures.get(line.site, Timed())
        if line.first_use:
            self.figures[line.site] = before + Timed(first_use=elapsed)
        else:
            self.figures[line.site] = before + Timed(1, elapsed, elapsed if line.falls_back else 0.0)


class _Timeline:
    """Memory in use on the target and time in operators, in at most `MOST_MOMENTS` intervals of equal length."""

    def __init__(self, timer: ctypes.CDLL, target: str, began: float) -> None:
        self.moments: list[Moment] = []
        self._began = began
        self._timer, self._target = timer, target.encode()
        self._busy = 0
        self._merged = 1  # samples per interval
        self._samples: list[Moment] = []

    def all(self) -> tuple[Moment, ...]:
        """The start, then the intervals."""
        return (Moment(os.getpid(), self._began, 0, 0.0), *self.moments)

    def add(self, seconds: float) -> None:
        """Take a sample, this many seconds after the start."""
        busy = self._timer.td_observed_busy()
        held = self._timer.td_observed_held(self._target)
        self._samples.append(Moment(os.getpid(), self._began + seconds, held, (busy - self._busy) / 1e9))
        self._busy = busy
        if len(self._samples) == self._merged:
            self.moments.append(_merge(self._samples))
            self._samples = []
        if len(self.moments) == MOST_MOMENTS:
            pairs = zip(self.moments[::2], self.moments[1::2], strict=True)
            self.moments = [_merge(pair) for pair in pairs]
            self._merged *= 2


def _merge(moments: Sequence[Moment]) -> Moment:
    held, busy = max(each.held for each in moments), sum(each.busy for each in moments)
    return Moment(moments[-1].process, moments[-1].seconds, held, busy)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of user code that runs. `first_use`: a library that the line calls imports modules that it needs first."""

    site: Site
    falls_back: bool
    first_use: bool


def _line(leaf: FrameType) -> _Line | None:
    falls_back, library = False, None
    importing = below = False  # some code imports a module; `below`: the frame below the line does
    frame: FrameType | None = leaf
    while frame is not None and (role := _role(frame)) != _USER:
        falls_back = falls_back or frame.f_code.co_filename.startswith(_ELSEWHERE)
        below = frame.f_code.co_filename.startswith(_IMPORTING)
        importing = importing or below
        if library is None and role == _LIBRARY:
            library = frame
        frame = frame.f_back
    frame = frame or library  # the program itself may be an installed module
    if frame is None or frame.f_lineno is None:
        return None
    # If the frame below the line imports, the line is an import statement.
    return _Line(Site(frame.f_code.co_filename, frame.f_lineno), falls_back, importing and not below)


_roles: dict[str, int] = {}


def _role(frame: FrameType) -> int:
    """Whether a frame runs user code, a library, torch or TorchDevice, or Python's standard library."""
    filename = frame.f_code.co_filename
    if filename.startswith("<"):  # `-c`, stdin, or generated code
        return _USER if frame.f_globals.get("__name__") == "__main__" else _INNER
    role = _roles.get(filename)
    if role is None:
        role = _roles[filename] = _role_of(filename)
    return role


def _role_of(filename: str) -> int:
    if filename.startswith((TORCH_FOLDER, _OURS)):
        return _INNER
    if filename.startswith(_INSTALLED):
        return _LIBRARY
    return _WAITING if filename.startswith(_STANDARD) else _USER
