"""Counts and limits the memory of CPU tensors with a small C++ library, as it is allocated and freed.

Counting starts at the first query for memory or the first limit. The library then takes over the memory of the
storages that exist.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from torchdevice._torch import core
from torchdevice.answers.counted import cpu_storages
from torchdevice.errors import VirtualDeviceUnavailable
from torchdevice.virtual import build

_RELIEF = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64)


class Counted:
    """The counts of the library, in bytes."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name in ("held", "highest", "refused", "allocated_here"):
            getattr(library, f"tdc_{name}").restype = ctypes.c_int64
        library.tdc_adopt.argtypes = [ctypes.c_void_p]
        library.tdc_adopt.restype = library.tdc_set_limit.restype = library.tdc_set_relief.restype = None
        library.tdc_set_limit.argtypes = [ctypes.c_int64, ctypes.c_char_p]
        library.tdc_error.restype = ctypes.c_char_p
        if library.tdc_begin():
            raise VirtualDeviceUnavailable(library.tdc_error().decode())
        for storage in cpu_storages():
            library.tdc_adopt(storage._cdata)
        library.tdc_reset_highest()
        self._library = library
        self._names: dict[str, bytes] = {}  # kept alive: C++ keeps their addresses
        self._reliefs: list[object] = []

    def functions(self) -> tuple[ctypes.c_void_p, ctypes.c_void_p]:
        """The addresses of two functions: the bytes that the calling thread has allocated so far, and those in use."""
        allocated, held = self._library.tdc_allocated_here, self._library.tdc_held
        return ctypes.cast(allocated, ctypes.c_void_p), ctypes.cast(held, ctypes.c_void_p)

    def held(self) -> int:
        """The bytes that tensors hold now."""
        return int(self._library.tdc_held())

    def highest(self) -> int:
        """The peak since the last reset."""
        return int(self._library.tdc_highest())

    def reset_highest(self) -> None:
        """Reset the peak."""
        self._library.tdc_reset_highest()

    def refused(self) -> int:
        """How many requests were beyond the limit."""
        return int(self._library.tdc_refused())

    def set_limit(self, most: int | None, name: str) -> None:
        """Refuse tensors beyond this many bytes in all (None: no limit). `name`: the device in the error."""
        self._library.tdc_set_limit(-1 if most is None else most, self._names.setdefault(name, name.encode()))

    def set_relief(self, relief: Callable[[int], bool] | None) -> None:
        """Set the function that is asked to free memory before a request of that many bytes is refused."""
        callback = None if relief is None else _RELIEF(relief)
        self._library.tdc_set_relief(callback)
        self._reliefs.append(callback)  # kept alive: a thread may wait in one that was replaced


def start(build_it: bool) -> Counted | None:
    """Start counting, until the process ends. Returns None if the library is missing, or cannot be built or used.

    A virtual device replaces the CPU's allocator itself, so beside one CPU memory is not counted.
    """
    if core.virtual_types:
        return None
    try:
        library = build.load(build.COUNTING) if build_it else build.load_if_built(build.COUNTING)
        return None if library is None else Counted(library)
    except VirtualDeviceUnavailable:
        return None
