"""Reads untrusted files: regular files only, without blocking, up to a given size."""

from __future__ import annotations

import os
import stat


def read_regular(path: str | os.PathLike[str], largest: int) -> bytes:
    """Read a whole file. Raises ValueError for a pipe, a device, a folder or a larger file, checked after opening."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("not a regular file")
    with open(descriptor, "rb") as file:
        data = file.read(largest + 1)  # it may grow while it is read
    if len(data) > largest:
        raise ValueError(f"larger than {_size(largest)}")
    return data


def _size(number: int) -> str:
    return f"{number >> 20} MiB" if number >= 1 << 20 else f"{number >> 10} KiB"
