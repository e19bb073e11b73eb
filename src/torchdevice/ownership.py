"""Who owns a path: every place on the way to it, and which of them another user could exchange. Root counts as ours."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

_LINKS = 40  # as many as Linux follows


def way_to(path: str | os.PathLike[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Every place that the system passes on its way to a path, links before what they lead to.

    Ends where something is not there. Nothing that was passed can be exchanged by a user whom `foreign` and
    `exchangeable` do not find: what comes after a place can be trusted if everything before it could.
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
    """Whether something belongs to a user that is neither this one nor root."""
    return found.st_uid not in (0, os.geteuid())


def writable_by_others(found: os.stat_result) -> bool:
    """Whether its group or everybody may write to it. A link's own mode means nothing."""
    return not stat.S_ISLNK(found.st_mode) and bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def exchangeable(found: os.stat_result) -> bool:
    """Whether others can exchange what is in a folder. The sticky bit (as on /tmp) forbids that."""
    return stat.S_ISDIR(found.st_mode) and writable_by_others(found) and not found.st_mode & stat.S_ISVTX
