"""Writes the file of a report atomically, never through another user's link, and without blocking forever."""

from __future__ import annotations

import errno
import os
import select
import stat

from torchdevice.ownership import foreign, way_to

SECONDS_TO_READ = 10.0  # how long a pipe's reader may take per piece; the program exits after that

_UNPRINTABLE = "backslashreplace"  # file names may contain bytes that are not text


def write(path: str, text: str) -> None:
    """Write a file. Any obstacle raises OSError with a `strerror` that names it."""
    for place, found in way_to(path):
        if stat.S_ISLNK(found.st_mode) and foreign(found):
            raise PermissionError(errno.EPERM, f"{place} is a link that belongs to another user", path)
    data = text.encode("utf-8", _UNPRINTABLE)
    try:
        before = os.stat(path)
    except FileNotFoundError:
        before = None
    if before is not None and not stat.S_ISREG(before.st_mode):
        _hand_over(path, data)
    else:
        _replace(path, data, before)


def _replace(path: str, data: bytes, before: os.stat_result | None) -> None:
    """Replace a file atomically: readers see the old or the new content, even if the disk fills up."""
    folder, name = os.path.split(os.path.realpath(path))  # the user's own link is kept
    unfinished = os.path.join(folder, f".{name[:64]}.{os.urandom(8).hex()}")
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        if before is not None and not foreign(before):  # keep the permissions of an existing report
            os.chmod(unfinished, stat.S_IMODE(before.st_mode))
        os.replace(unfinished, os.path.join(folder, name))
    except BaseException:
        os.unlink(unfinished)
        raise


def _hand_over(path: str, data: bytes) -> None:
    """Write to a pipe, a terminal or a device, which may have no reader."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "it has no active reader", path) from error
        raise
    try:
        ready = select.poll()
        ready.register(handle, select.POLLOUT)
        while data:
            if not ready.poll(SECONDS_TO_READ * 1000):
                raise TimeoutError(errno.ETIMEDOUT, "it has no active reader", path)
            data = data[os.write(handle, data[: select.PIPE_BUF]) :]
    finally:
        os.close(handle)
