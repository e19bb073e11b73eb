"""The cache folder of compiled libraries. Libraries run in this process, so only this user may be able to write them.

Unsafe permissions are an error and are not repaired: other users may already have put files into the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from pathlib import Path

from torchdevice.config import cache_folder
from torchdevice.errors import VirtualDeviceUnavailable, explain_error
from torchdevice.ownership import exchangeable, foreign, way_to, writable_by_others

FOLDER = "libraries"  # inside the cache folder, which may hold other files


def folder_name() -> Path:
    """The path of the folder. It may not exist, and its owner is not checked."""
    return Path(os.path.abspath(cache_folder())) / FOLDER


def folder() -> Path:
    """The folder, created if necessary. Raises if other users can write to it or replace it."""
    wanted = folder_name()
    try:
        objection = _objection(wanted)
        if not objection:
            for place in (*reversed(wanted.parents), wanted):
                with contextlib.suppress(FileExistsError):
                    place.mkdir(mode=0o700)
            objection = _objection(wanted)  # again: another process may have created it in between
    except OSError as error:
        raise VirtualDeviceUnavailable(
            explain_error(
                f"Compiled libraries are cached in {wanted}",
                f"that folder cannot be created: {error.strerror}",
                "set TORCHDEVICE_CACHE to a writable folder.",
            )
        ) from error
    if objection:
        raise VirtualDeviceUnavailable(
            explain_error(
                f"Compiled libraries are cached in {wanted}",
                f"{objection}, and code from that folder would run in this process",
                "set TORCHDEVICE_CACHE to a folder of your own, or `chmod go-w` this one.",
            )
        )
    return wanted


def _objection(wanted: Path) -> str:
    """Why the folder or one of its parents is unsafe; empty if all that exist are safe."""
    inside = os.path.realpath(wanted.parent)
    kept = os.path.join(inside, FOLDER)
    for place, found in way_to(wanted):
        if foreign(found) or (place == kept and found.st_uid != os.geteuid()):
            return f"{place} belongs to another user"
        if exchangeable(found) or (place in (inside, kept) and writable_by_others(found)):
            return f"others can write to {place}"
        if place == kept and not stat.S_ISDIR(found.st_mode):
            return f"{place} is not a folder"
    return ""


def open_own(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file that this user owns and that other users cannot write to."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:  # a symbolic link, a pipe without a reader, a folder, a file of another user
        raise _refusal(path, error.strerror or "it cannot be opened") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        why = "it is not a regular file"
    elif found.st_uid != os.geteuid():
        why = "it belongs to another user"
    elif writable_by_others(found):
        why = "others can write to it"
    else:
        return descriptor
    os.close(descriptor)
    raise _refusal(path, why)


def _refusal(path: Path, why: str) -> VirtualDeviceUnavailable:
    return VirtualDeviceUnavailable(
        explain_error(
            f"{path} holds code that would run in this process",
            f"{why}, so another user may have put it there",
            "`torchdevice virtual clean` deletes the cached libraries; the next use builds them again.",
        )
    )


def load(path: Path, descriptor: int) -> ctypes.CDLL:
    """Load a library through an open descriptor, so that the checked file is loaded even if the path has changed.

    The descriptor stays open. Its number is part of the name, and the loader treats two libraries of one name as one.
    """
    opened = f"/proc/{os.getpid()}/fd/{descriptor}"
    return ctypes.CDLL(opened if os.path.exists(opened) else str(path))  # macOS has no /proc
