"""The C++ library as a Python object: the types of its functions, errors as exceptions. One instance per process."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import torch

from torchdevice.answers.device import Action, Block, Figures, History, Segment
from torchdevice.answers.devices import accelerator_error

# The statistics per device, in the order in which the library returns them: see `flattened` in segments.cpp.
_COUNTED = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
_KINDS = ("all", "small_pool", "large_pool")
_EVENTS = ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free")


class Count(NamedTuple):
    """How often an operator ran, was refused, and ran on the CPU because the backing device lacks it."""

    operator: str
    calls: int
    denied: int
    on_host: int


_INT, _I64, _U64, _STR, _PTR = ctypes.c_int, ctypes.c_int64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_void_p
# name: (result, arguments). None stands for an int result that `call` checks for errors.
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "td_error": (_STR, []),
    "td_error_code": (_INT, []),
    "td_functionalities": (_STR, []),
    "td_init": (None, [_STR, _STR, _INT, _STR, _U64, _U64]),
    "td_native_kernels": (_STR, []),
    "td_register": (None, [_STR, _STR, _STR, _STR, _STR]),
    "td_guard_dtypes": (None, [_STR, _STR]),
    "td_fallback": (None, [_STR, _STR]),
    "td_repair_autograd": (_INT, []),
    "td_autograd_threads_run": (_INT, []),
    "td_default_generators": (_INT, [_INT]),
    "td_counts": (_STR, []),
    "td_reset_counts": (_INT, []),
    "td_allow_host": (_INT, [_INT]),
    "td_lost_by_fork": (_INT, []),
    "td_synchronize": (None, [_INT]),
    "td_empty_cache": (None, [_U64, _U64]),
    "td_empty_pinned_cache": (None, []),
    "td_begin_pool": (None, [_INT, _U64, _U64, _INT]),
    "td_end_pool": (None, [_INT, _U64, _U64]),
    "td_keep_pool": (None, [_INT, _U64, _U64]),
    "td_drop_pool": (None, [_INT, _U64, _U64]),
    "td_pool_users": (_INT, [_INT, _U64, _U64]),
    "td_restore_pool": (None, [_INT, _U64, _U64, _STR]),
    "td_point": (None, [_PTR, _PTR, _U64]),
    "td_own": (None, [_PTR]),
    "td_disown": (None, [_PTR]),
    "td_free": (None, [_INT, _PTR]),
    "td_get_device": (_INT, []),
    "td_set_device": (None, [_INT]),
    "td_current_stream": (_I64, [_INT]),
    "td_set_stream": (None, [_I64, _INT]),
    "td_elapsed": (ctypes.c_double, [_I64, _I64]),
    "td_usage": (None, [_INT, _PTR]),
    "td_reset_peak": (None, [_INT]),
    "td_reset_accumulated": (None, [_INT]),
    "td_set_limit": (None, [_INT, _U64]),
    "td_limit": (_U64, [_INT]),
    "td_free_memory": (_U64, [_INT]),
    "td_resize": (None, [_PTR, _U64]),
    "td_adopt": (None, [_PTR, _PTR]),
    "td_sync_debug_mode": (None, [_INT]),
    "td_pin": (None, [_PTR, _U64]),
    "td_unpin": (None, [_PTR]),
    "td_keep_busy": (None, [ctypes.c_double]),
    "td_record_history": (None, [_INT, _INT, _INT, _U64, _INT]),
    "td_history": (_STR, []),
    "td_observe_out_of_memory": (None, [_PTR]),
    "td_set_relief": (None, [_PTR]),
    "td_capture_begin": (None, [_U64, _U64, _PTR]),
    "td_capture_end": (None, [_I64]),
    "td_capture_replay": (None, [_I64]),
    "td_capture_drop": (_INT, [_I64]),
    "td_capturing": (_INT, []),
}
# The results with which functions that return a number report an error.
_NO_ANSWER = {"td_current_stream": -1, "td_limit": 2**64 - 1, "td_free_memory": 2**64 - 1}


_OUT_OF_MEMORY = -1  # `kOutOfMemory` in calls.h


class Library:
    """A thin layer: methods for the C functions that need conversion in Python, `call` for the others."""

    def __init__(self, dll: ctypes.CDLL) -> None:
        self.dll = dll
        self._observers: list[object] = []
        self._reliefs: list[object] = []
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self.dll, name)
            function.restype = _INT if result is None else result
            function.argtypes = arguments

    def call(self, name: str, *arguments: object) -> int:
        """Calls `td_<name>`. Raises with the message of C++ if it fails."""
        function = f"td_{name}"
        result = getattr(self.dll, function)(*(a.encode() if isinstance(a, str) else a for a in arguments))
        failed = bool(result) if _SIGNATURES[function][0] is None else result == _NO_ANSWER.get(function)
        if failed:
            raise self._failure()
        return int(result) if isinstance(result, int) else 0

    def _failure(self) -> RuntimeError:
        """The last error of this thread, of the class that torch raises for it."""
        said, code = self.dll.td_error().decode(errors="replace"), self.dll.td_error_code()
        if code == _OUT_OF_MEMORY:
            return torch.OutOfMemoryError(said)
        return accelerator_error(said, code) if code else RuntimeError(said)

    def functionalities(self) -> list[str]:
        """The prefixes of dispatch keys: `` (CPU), `Sparse` (SparseCPU), …"""
        return self._lines("functionalities")

    def native_kernels(self) -> set[tuple[str, str]]:
        """Pairs of (dispatch key, operator without `aten::`) for which the library has its own kernel."""
        return {(key, name) for key, name in (row.split("\t") for row in self._lines("native_kernels"))}

    def _lines(self, name: str) -> list[str]:
        return getattr(self.dll, f"td_{name}")().decode().splitlines()

    def statistics(self, device: int) -> dict[str, Any]:
        """The memory statistics of one device, with the keys of `torch.cuda.memory_stats_as_nested_dict`."""
        names = [field.name for field in fields(Figures)]
        figures = (ctypes.c_int64 * (len(_COUNTED) * len(_KINDS) * len(names) + len(_EVENTS)))()
        self.call("usage", device, ctypes.cast(figures, ctypes.c_void_p))
        values = iter(figures)
        counted = {name: {kind: {each: next(values) for each in names} for kind in _KINDS} for name in _COUNTED}
        return counted | {name: next(values) for name in _EVENTS}

    def elapsed(self, start_event: int, end_event: int) -> float:
        """Milliseconds between two recorded events, given as torch's `event_id`."""
        milliseconds = float(self.dll.td_elapsed(start_event, end_event))
        if math.isnan(milliseconds):
            raise self._failure()
        return milliseconds

    def counts(self) -> list[Count]:
        rows = (row.split("\t") for row in self._lines("counts"))
        return [Count(name, *map(int, figures)) for name, *figures in rows]

    def history(self) -> History:
        """The present allocations and the recorded events, each with the stack of its caller."""
        kinds: dict[str, list[list[str]]] = {"F": [], "S": [], "T": []}
        segments: list[tuple[list[str], list[list[str]]]] = []
        for line in self.dll.td_history().decode(errors="replace").split("\n")[:-1]:
            kind, *given = line.split("\t")
            if kind == "G":
                segments.append((given, []))
            elif kind == "P":
                segments[-1][1].append(given)
            else:
                kinds[kind].append(given)
        frames = [{"filename": file, "line": int(number), "name": name} for file, number, name in kinds["F"]]
        stacks = [[frames[int(each)] for each in stack] for stack in kinds["S"]]

        def frames_of(stack: str) -> list[dict[str, Any]]:
            return stacks[int(stack)] if int(stack) >= 0 else []

        held = []
        for (device, address, size, stream, owner, pool, large, stack), pieces in segments:
            blocks = [
                Block(int(start), int(length), int(asked), Block.STATES[int(state)], frames_of(by))
                for start, length, asked, state, by in pieces
            ]
            place = (int(owner), int(pool))
            frames_there = frames_of(stack)
            held.append(
                Segment(int(device), int(address), int(size), int(stream), place, large == "1", frames_there, blocks)
            )
        done = [
            Action(int(device), action, int(address), int(size), int(stream), int(time), frames_of(stack))
            for device, action, address, size, stream, time, stack in kinds["T"]
        ]
        return History(held, done)

    def observe_out_of_memory(self, observer: Callable[[int, int, int, int], None]) -> None:
        callback = ctypes.CFUNCTYPE(None, _INT, _I64, _I64, _I64)(observer)
        self._observers.append(callback)  # kept alive: C++ calls it until the process ends
        self.call("observe_out_of_memory", ctypes.cast(callback, ctypes.c_void_p))

    def set_relief(self, relief: Callable[[int, int, int], int] | None) -> None:
        """Set the function that full devices ask: see `ReliefAnswer` in device.h."""
        callback = None if relief is None else ctypes.CFUNCTYPE(_INT, _INT, _I64, _INT)(relief)
        self.call("set_relief", ctypes.cast(callback, ctypes.c_void_p) if callback is not None else None)
        self._reliefs.append(callback)  # kept alive: a thread may wait in one that was replaced

    def capture_begin(self, pool: tuple[int, int]) -> int:
        graph = ctypes.c_int64()
        self.call("capture_begin", *pool, ctypes.cast(ctypes.byref(graph), ctypes.c_void_p))
        return graph.value
