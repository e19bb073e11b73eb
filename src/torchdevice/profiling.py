"""Measures for `run --profile`: time per operator and device, time per line of user code, and batches of data loaders.

Operators are timed by a callback of torch, in C++ and in all threads (`virtual/native/observe.cpp`), which costs
a fraction of a microsecond per operator. Lines are sampled: a hundred times per second a thread reads which line of
user code every other thread is running, and adds the time since the last sample to it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

from torchdevice._torch.core import DATALOADER_ITERATOR, TORCH_FOLDER, RealTensor
from torchdevice.errors import VirtualDeviceUnavailable
from torchdevice.fallback import route
from torchdevice.ledger import Fallback, FallbackTotals, Site
from torchdevice.reporting.collect import Profile, Timed
from torchdevice.translate.engine import Function, Replacement, apply, dress
from torchdevice.translate.points import resolve_path
from torchdevice.virtual.build import OPERATOR_TIMES, load

INTERVAL = 0.01

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
_ELSEWHERE = os.path.join(_OURS, "fallback", "")
_STANDARD = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib"))
_INSTALLED = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("purelib", "platlib"))
_IMPORTING = "<frozen importlib._bootstrap"
_USER, _LIBRARY, _INNER, _WAITING = range(4)


class Profiler:
    """The profile of one process, from `start` to `stop`."""

    def __init__(self) -> None:
        """Must run before the session starts, because the session takes the executors from their table."""
        self._timer: ctypes.CDLL | None = None
        self._missing = ""
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

    def start(self) -> None:
        """Start measuring."""
        if self._timer is not None:
            self._timer.td_observe()
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
        half = 0.0
        if self._timer is None:
            for fallback, totals in fallbacks.items():
                key = (fallback.operator, fallback.executor)
                operators[key] = operators.get(key, Timed()) + Timed(totals.calls, totals.seconds)
        else:
            for row in filter(None, self._timer.td_observed().decode("utf-8", "replace").split("\n")):
                name, where, calls, nanoseconds = row.split("\t")
                operators[name, where] = Timed(int(calls), int(nanoseconds) / 1e9)
            half = self._timer.td_observed_half() / 1e9
        lines, batches = self._lines, self._batches
        figures = dict(lines.figures)
        return Profile(operators, figures, lines.seconds, self._missing, half, batches.batches, batches.samples)


def _typed(timer: ctypes.CDLL) -> ctypes.CDLL:
    timer.td_observe_push.argtypes = [ctypes.c_char_p]
    timer.td_observed.restype = ctypes.c_char_p
    timer.td_observed_half.restype = ctypes.c_int64
    return timer


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
        self._ending = threading.Event()
        self._roles: dict[str, int] = {}

    def run(self) -> None:
        main = threading.main_thread().ident
        last = time.perf_counter()
        while not self._ending.wait(INTERVAL):
            now = time.perf_counter()
            elapsed, last = now - last, now
            self.seconds += elapsed
            for thread, frame in sys._current_frames().items():
                if thread != self.ident:
                    self._add(frame, thread == main, elapsed)

    def stop(self) -> None:
        """Stop within one interval."""
        self._ending.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join()

    def _add(self, leaf: FrameType, is_main: bool, elapsed: float) -> None:
        if not is_main and self._role(leaf) == _WAITING:  # a thread of a library that waits for work
            return
        elsewhere, library, below = False, None, False
        importing = False  # some code imports a module; `below`: the frame below the line does
        frame: FrameType | None = leaf
        while frame is not None and (role := self._role(frame)) != _USER:
            elsewhere = elsewhere or frame.f_code.co_filename.startswith(_ELSEWHERE)
            below = frame.f_code.co_filename.startswith(_IMPORTING)
            importing = importing or below
            if library is None and role == _LIBRARY:
                library = frame
            frame = frame.f_back
        frame = frame or library  # the program itself may be an installed module
        if frame is not None and frame.f_lineno is not None:
            site = Site(frame.f_code.co_filename, frame.f_lineno)
            before = self.figures.get(site, Timed())
            if importing and not below:  # the line is no import statement: a library imports what it needs first
                self.figures[site] = before + Timed(first_use=elapsed)
            else:
                self.figures[site] = before + Timed(1, elapsed, elapsed if elsewhere else 0.0)

    def _role(self, frame: FrameType) -> int:
        """Whether a frame runs user code, a library, torch or TorchDevice, or Python's standard library."""
        filename = frame.f_code.co_filename
        if filename.startswith("<"):  # `-c`, stdin, or generated code
            return _USER if frame.f_globals.get("__name__") == "__main__" else _INNER
        role = self._roles.get(filename)
        if role is None:
            role = self._roles[filename] = _role_of(filename)
        return role


def _role_of(filename: str) -> int:
    if filename.startswith((TORCH_FOLDER, _OURS)):
        return _INNER
    if filename.startswith(_INSTALLED):
        return _LIBRARY
    return _WAITING if filename.startswith(_STANDARD) else _USER
