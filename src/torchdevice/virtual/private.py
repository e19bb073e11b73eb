"""Where libraries are kept: a folder and files that only this user can have written, because they run in this process.

Nothing is repaired: a folder that was open to others may hold what they put there.
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

FOLDER = "libraries"  # below the cache, which may be a folder that holds other things, too


def folder_name() -> Path:
    """Its name; it may not be there, and whose it is nobody has looked at."""
    return Path(os.path.abspath(cache_folder())) / FOLDER


def folder() -> Path:
    """The folder, made if need be. One that others can write to, or exchange, is refused."""
    wanted = folder_name()
    try:
        objection = _objection(wanted)
        if not objection:
            for place in (*reversed(wanted.parents), wanted):
                with contextlib.suppress(FileExistsError):
                    place.mkdir(mode=0o700)
            objection = _objection(wanted)  # once more: somebody may have been faster
    except OSError as error:
        raise VirtualDeviceUnavailable(
            explain_error(
                f"What is built on this machine is kept in {wanted}",
                f"that folder cannot be made: {error.strerror}",
                "set TORCHDEVICE_CACHE to a folder that can be written.",
            )
        ) from error
    if objection:
        raise VirtualDeviceUnavailable(
            explain_error(
                f"What is built on this machine is kept in {wanted}",
                f"{objection}, and what lies there would run in this process",
                "set TORCHDEVICE_CACHE to a folder of your own, or `chmod go-w` this one.",
            )
        )
    return wanted


def _objection(wanted: Path) -> str:
    """What is wrong with the way to the folder, as far as it is there; empty if nothing is."""
    inside = os.path.realpath(wanted.parent)
    kept = os.path.join(inside, FOLDER)
    for place, found in way_to(wanted):
        if foreign(found) or (place == kept and found.st_uid != os.geteuid()):
            return f"{place} belongs to another user"
        if exchangeable(found) or (place in (inside, kept) and writable_by_others(found)):
            return f"others can write to {place}"
        if place == kept and not stat.S_ISDIR(found.st_mode):
            return f"{place} is no folder"
    return ""


def open_own(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file that belongs to this user and that others cannot write to."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except FileNotFoundError:
        raise
    except OSError as error:  # a link, a pipe that nobody reads, a folder, a file of another user
        raise _refusal(path, error.strerror or "it cannot be opened") from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        why = "it is no regular file"
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
            f"{path} was to be used, which would decide what runs in this process",
            f"{why}, so somebody else may have put it there",
            "`torchdevice virtual clean` deletes what is kept; then it is built again.",
        )
    )


def load(path: Path, descriptor: int) -> ctypes.CDLL:
    """The library behind a descriptor, so that what was examined is what runs, whatever the path leads to by now.

    The descriptor stays open: the loader takes two libraries of one name for the same, and its number is the name.
    """
    opened = f"/proc/{os.getpid()}/fd/{descriptor}"
    return ctypes.CDLL(opened if os.path.exists(opened) else str(path))  # macOS has no such names
