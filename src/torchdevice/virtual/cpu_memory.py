"""What tensors on the CPU hold, counted by a small C++ library as memory is allocated and freed.

Nothing is counted before the first question about memory. What tensors hold then is adopted: the library takes over the
memory of their storages.
"""

from __future__ import annotations

import ctypes

from torchdevice.answers.real import cpu_storages
from torchdevice.errors import VirtualDeviceUnavailable
from torchdevice.virtual import build


class Counted:
    """The figures of the library, in bytes."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name in ("held", "highest"):
            getattr(library, f"tdc_{name}").restype = ctypes.c_int64
        library.tdc_adopt.argtypes = [ctypes.c_void_p]
        library.tdc_adopt.restype = None
        library.tdc_error.restype = ctypes.c_char_p
        if library.tdc_begin():
            raise VirtualDeviceUnavailable(library.tdc_error().decode())
        for storage in cpu_storages():
            library.tdc_adopt(storage._cdata)
        library.tdc_reset_highest()
        self._library = library

    def held(self) -> int:
        """By tensors, now."""
        return int(self._library.tdc_held())

    def highest(self) -> int:
        """The most since the last reset."""
        return int(self._library.tdc_highest())

    def reset_highest(self) -> None:
        """From now on."""
        self._library.tdc_reset_highest()


def start(build_it: bool) -> Counted | None:
    """Count from now on, for the life of the process. None: the library is not there, or cannot be built or used."""
    try:
        library = build.load(build.COUNTING) if build_it else build.load_if_built(build.COUNTING)
        return None if library is None else Counted(library)
    except VirtualDeviceUnavailable:
        return None
