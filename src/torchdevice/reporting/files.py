"""Writes the file of a report: all of it or nothing, never through a link of another user, and without waiting."""

from __future__ import annotations

import errno
import os
import select
import stat

from torchdevice.ownership import foreign, way_to

SECONDS_TO_READ = 10.0  # what a reader of a pipe may take for its next piece: a program ends only after it

_UNPRINTABLE = "backslashreplace"  # names of files may have bytes that are no text


def write(path: str, text: str) -> None:
    """Whatever is in the way is an OSError whose `strerror` says what."""
    for place, found in way_to(path):
        if stat.S_ISLNK(found.st_mode) and foreign(found):
            raise PermissionError(errno.EPERM, f"{place} is a link of another user", path)
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
    """Others see what was there before or all of this, also when the disk is full on the way."""
    folder, name = os.path.split(os.path.realpath(path))  # a link of ours stays one
    unfinished = os.path.join(folder, f".{name[:64]}.{os.urandom(8).hex()}")
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        if before is not None and not foreign(before):  # who had opened a report to others wants it open
            os.chmod(unfinished, stat.S_IMODE(before.st_mode))
        os.replace(unfinished, os.path.join(folder, name))
    except BaseException:
        os.unlink(unfinished)
        raise


def _hand_over(path: str, data: bytes) -> None:
    """To a pipe, a terminal, a device: there is nothing to keep whole, and perhaps nobody who reads."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "nobody reads it", path) from error
        raise
    try:
        ready = select.poll()
        ready.register(handle, select.POLLOUT)
        while data:
            if not ready.poll(SECONDS_TO_READ * 1000):
                raise TimeoutError(errno.ETIMEDOUT, "nobody reads it", path)
            data = data[os.write(handle, data[: select.PIPE_BUF]) :]
    finally:
        os.close(handle)
