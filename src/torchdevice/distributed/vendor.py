"""`ProcessGroupNCCL` (or XCCL) in a torch that is built without it: a gloo group under that name.

Code names the class for its options and for `isinstance`; whoever makes an object of it gets gloo.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch.distributed.distributed_c10d as c10d

# Code that names NCCL counts on its timeout, not on gloo's half hour. torch has the figure only where it has NCCL.
VENDOR_TIMEOUT = timedelta(minutes=10)


class Options(SimpleNamespace):
    """ProcessGroupNCCL.Options: every field can be set, only the timeout matters."""

    def __init__(self, is_high_priority_stream: bool = False, **fields: Any) -> None:
        given = {"_timeout": VENDOR_TIMEOUT, "config": SimpleNamespace(), **fields}
        super().__init__(is_high_priority_stream=is_high_priority_stream, **given)


def group_class(name: str) -> Any:
    """A class `ProcessGroup<name>` on gloo; None where torch has no gloo, and so nothing can stand in."""
    gloo = getattr(c10d, "ProcessGroupGloo", None)
    if gloo is None:
        return None

    def start(self: Any, store: Any, rank: int, size: int, options: Any = None) -> None:
        timeout = getattr(options, "_timeout", None) or c10d.default_pg_timeout
        gloo.__init__(self, store, rank, size, timeout=timeout)

    body = {
        "__init__": start,
        "__module__": c10d.__name__,
        "Options": Options,
        "_group_start": lambda self: None,
        "_group_end": lambda self: None,
        "_shutdown": lambda self: None,
        "abort": lambda self: None,
        "perform_nocolor_split": lambda self, device: None,
    }
    return type(f"ProcessGroup{name}", (gloo,), body)
