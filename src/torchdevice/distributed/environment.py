"""Variables that speak to NCCL or CUDA and mean nothing here: each is listed once in the report."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from torchdevice.events import Ledger, Simulated, Site

MEANINGLESS = re.compile(r"(NCCL|TORCH_NCCL|RCCL|CUDA)_[A-Z0-9_]+")
# Honoured (a count of devices), read by tools that build and find software, or set by torchrun for every worker.
MEANT = frozenset(
    {"CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "CUDA_VERSION", "CUDA_MODULE_LOADING"}
    | {"TORCH_NCCL_ASYNC_ERROR_HANDLING"}
)
ENVIRONMENT = "<environment>"


def meaningless(environ: Mapping[str, str]) -> Iterator[str]:
    """The names, in order."""
    return (name for name in sorted(environ) if MEANINGLESS.fullmatch(name) and name not in MEANT)


def note(ledger: Ledger[Simulated], target: str, environ: Mapping[str, str] | None = None) -> None:
    """Enter each variable into the ledger of answers, once a process."""
    code = note.__code__
    for name in meaningless(os.environ if environ is None else environ):
        key = (ENVIRONMENT, name)
        if ledger.counter(key) is None:
            record = Simulated(f"environ.{name}", "no-op", target, Site(ENVIRONMENT, 0))
            next(ledger.open(key, code, record))
