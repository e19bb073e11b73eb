"""What a fork needs: nobody activates meanwhile, and a child that lost its accelerator says so at its first request.

What the child does instead is `session`'s business, locks of single objects are `events.renew_after_fork`'s.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

from torchdevice.errors import TorchDeviceWarning
from torchdevice.events import Redirect


def guard(lock: Any, in_child: Callable[[], None]) -> None:
    """A fork waits for whoever holds the lock, so that no child begins with half of an activation; then `in_child`."""

    def begin() -> None:
        lock.release()
        in_child()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=begin)


def say_lost(record: Redirect) -> None:
    """A warning at the line that asked: what became of it, and why."""
    what = f"torchdevice: {record.api}({record.asked}) → {record.given}: {record.reason}"
    text = f"{what}. Hint: start processes by spawn"
    warnings.warn_explicit(text, TorchDeviceWarning, record.site.file, record.site.line)
