"""Checks whether another user owns or could replace any part of a path. Files of root are trusted."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

_LINKS = 40  # the limit of Linux


def way_to(path: str | os.PathLike[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Every file, folder and link that the system visits to resolve a path, each link before its target.

    Ends at the first one that does not exist. If neither `foreign` nor `exchangeable` is true for any of them, no other
    user can replace the path.
    """
    waiting = os.path.abspath(path).split(os.sep)[::-1]
    at, links = os.sep, 0
    yield at, os.lstat(at)
    while waiting:
        name = waiting.pop()
        if name in ("", os.curdir):
            continue
        if name == os.pardir:
            at = os.path.dirname(at)
            continue
        place = os.path.join(at, name)
        try:
            found = os.lstat(place)
        except FileNotFoundError:
            return
        yield place, found
        if not stat.S_ISLNK(found.st_mode):
            at = place
            continue
        links += 1
        if links > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), place)
        leads_to = os.readlink(place)
        at = os.sep if leads_to.startswith(os.sep) else at
        waiting += leads_to.split(os.sep)[::-1]


def foreign(found: os.stat_result) -> bool:
    """Whether a file belongs to a user other than this one and root."""
    return found.st_uid not in (0, os.geteuid())


def writable_by_others(found: os.stat_result) -> bool:
    """Whether its group or all users may write to it. The mode of a link is ignored."""
    return not stat.S_ISLNK(found.st_mode) and bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def exchangeable(found: os.stat_result) -> bool:
    """Whether other users can replace the contents of a folder. The sticky bit (as on /tmp) prevents that."""
    return stat.S_ISDIR(found.st_mode) and writable_by_others(found) and not found.st_mode & stat.S_ISVTX
