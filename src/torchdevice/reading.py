"""Reads files that somebody else wrote: regular ones alone, without waiting, and no more than was asked for."""

from __future__ import annotations

import os
import stat


def read_regular(path: str | os.PathLike[str], largest: int) -> bytes:
    """All of a file. A pipe, a device, a folder or a larger file is a ValueError; what it is shows once it is open."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("no regular file")
    with open(descriptor, "rb") as file:
        data = file.read(largest + 1)  # it may grow while it is read
    if len(data) > largest:
        raise ValueError(f"larger than {_size(largest)}")
    return data


def _size(number: int) -> str:
    return f"{number >> 20} MiB" if number >= 1 << 20 else f"{number >> 10} KiB"
