"""The C library as a Python object: types of its functions, errors as exceptions. One instance a process."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from torchdevice.answers.device import Action, Allocation, History


class Usage(NamedTuple):
    """Bytes and blocks that one device holds and has held."""

    bytes: int
    bytes_peak: int
    bytes_allocated: int
    bytes_freed: int
    blocks: int
    blocks_peak: int
    blocks_allocated: int
    blocks_freed: int
    reserved: int
    reserved_peak: int
    reserved_allocated: int
    reserved_freed: int
    ooms: int


class Count(NamedTuple):
    """How often an operator ran, was refused, and was computed by the CPU because the device beneath lacks it."""

    operator: str
    calls: int
    denied: int
    on_host: int


_INT, _I64, _U64, _STR, _PTR = ctypes.c_int, ctypes.c_int64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_void_p
# name: (result, arguments); an int result that is checked is written as None
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "td_error": (_STR, []),
    "td_functionalities": (_STR, []),
    "td_init": (None, [_STR, _STR, _INT, _STR, _U64, _U64]),
    "td_native_kernels": (_STR, []),
    "td_register": (None, [_STR, _STR, _STR, _STR]),
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
    "td_empty_cache": (None, []),
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
    "td_capture_begin": (None, [_PTR]),
    "td_capture_end": (None, [_I64]),
    "td_capture_replay": (None, [_I64]),
    "td_capture_drop": (_INT, [_I64]),
    "td_capturing": (_INT, []),
}
# What those that answer with a number answer where there is none.
_NO_ANSWER = {"td_current_stream": -1, "td_limit": 2**64 - 1, "td_free_memory": 2**64 - 1}


class Library:
    """Thin: one method a C function where Python has something to add, `call` for the rest."""

    def __init__(self, dll: ctypes.CDLL) -> None:
        self._dll = dll
        self._observers: list[object] = []
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._dll, name)
            function.restype = _INT if result is None else result
            function.argtypes = arguments

    def call(self, name: str, *arguments: object) -> int:
        """Calls `td_<name>`; a failure raises the message that C++ left."""
        function = f"td_{name}"
        result = getattr(self._dll, function)(*(a.encode() if isinstance(a, str) else a for a in arguments))
        failed = bool(result) if _SIGNATURES[function][0] is None else result == _NO_ANSWER.get(function)
        if failed:
            raise RuntimeError(self._dll.td_error().decode())
        return int(result) if isinstance(result, int) else 0

    def functionalities(self) -> list[str]:
        """Each name begins a dispatch key: `` (CPU), `Sparse` (SparseCPU), …"""
        return self._lines("functionalities")

    def native_kernels(self) -> set[tuple[str, str]]:
        """(dispatch key, operator without `aten::`) for which the library has a kernel of its own."""
        return {(key, name) for key, name in (row.split("\t") for row in self._lines("native_kernels"))}

    def _lines(self, name: str) -> list[str]:
        return getattr(self._dll, f"td_{name}")().decode().splitlines()

    def usage(self, device: int) -> Usage:
        values = (ctypes.c_int64 * len(Usage._fields))()
        self.call("usage", device, ctypes.cast(values, ctypes.c_void_p))
        return Usage(*values)

    def elapsed(self, start_event: int, end_event: int) -> float:
        """Milliseconds between two recorded events, given as torch's `event_id`."""
        milliseconds = float(self._dll.td_elapsed(start_event, end_event))
        if math.isnan(milliseconds):
            raise RuntimeError(self._dll.td_error().decode())
        return milliseconds

    def counts(self) -> list[Count]:
        rows = (row.split("\t") for row in self._lines("counts"))
        return [Count(name, *map(int, figures)) for name, *figures in rows]

    def history(self) -> History:
        """What is held and what was done, with the frames of whoever asked for it."""
        kinds: dict[str, list[list[str]]] = {"F": [], "S": [], "B": [], "T": []}
        for line in self._dll.td_history().decode(errors="replace").split("\n")[:-1]:
            kind, *fields = line.split("\t")
            kinds[kind].append(fields)
        frames = [{"filename": file, "line": int(number), "name": name} for file, number, name in kinds["F"]]
        stacks = [[frames[int(each)] for each in stack] for stack in kinds["S"]]

        def frames_of(stack: str) -> list[dict[str, Any]]:
            return stacks[int(stack)] if int(stack) >= 0 else []

        held = [
            Allocation(int(device), int(address), int(size), int(stream), frames_of(stack))
            for device, address, size, stream, stack in kinds["B"]
        ]
        done = [
            Action(int(device), action, int(address), int(size), int(stream), int(time), frames_of(stack))
            for device, action, address, size, stream, time, stack in kinds["T"]
        ]
        return History(held, done)

    def observe_out_of_memory(self, observer: Callable[[int, int, int, int], None]) -> None:
        callback = ctypes.CFUNCTYPE(None, _INT, _I64, _I64, _I64)(observer)
        self._observers.append(callback)  # C++ calls it for ever
        self.call("observe_out_of_memory", ctypes.cast(callback, ctypes.c_void_p))

    def capture_begin(self) -> int:
        graph = ctypes.c_int64()
        self.call("capture_begin", ctypes.cast(ctypes.byref(graph), ctypes.c_void_p))
        return graph.value
