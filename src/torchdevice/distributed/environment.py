"""Variables that speak to NCCL or CUDA: one is carried over to gloo, the others mean nothing and are listed once."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence

from torchdevice.events import Ledger, Simulated, Site

MEANINGLESS = re.compile(r"(NCCL|TORCH_NCCL|RCCL|CUDA)_[A-Z0-9_]+")
# Honoured (a count of devices), read by tools that build and find software, or set by torchrun for every worker.
MEANT = frozenset(
    {"CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "CUDA_VERSION", "CUDA_MODULE_LOADING"}
    | {"TORCH_NCCL_ASYNC_ERROR_HANDLING"}
)
# Which network interface to use: a cluster's scripts say it to NCCL.
NCCL_INTERFACE, GLOO_INTERFACE = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
ENVIRONMENT = "<environment>"


def interface(asked: str, there: Sequence[str]) -> str | None:
    """The first interface that NCCL's rule names: prefixes, `=` for exact names, `^` for all others."""
    exact, others = asked.startswith(("=", "^=")), asked.startswith("^")
    wanted = [name for name in asked.lstrip("^=").split(",") if name]

    def fits(name: str) -> bool:
        named = any(name == each if exact else name.startswith(each) for each in wanted)
        return named != others

    return next((name for name in there if fits(name) and (name != "lo" or not others)), None)


def carry_over() -> Callable[[], object]:
    """Tell gloo the interface that NCCL was told, unless gloo was told one itself; the result takes that back."""
    asked = os.environ.get(NCCL_INTERFACE)
    if asked and not os.environ.get(GLOO_INTERFACE):
        chosen = interface(asked, [name for _, name in socket.if_nameindex()])
        if chosen is not None:
            os.environ[GLOO_INTERFACE] = chosen
            return lambda: os.environ.pop(GLOO_INTERFACE, None)
    return lambda: None


def meaningless(environ: Mapping[str, str]) -> Iterator[str]:
    """The names, in order."""
    carried = {NCCL_INTERFACE} if environ.get(GLOO_INTERFACE) else set()
    return (name for name in sorted(environ) if MEANINGLESS.fullmatch(name) and name not in MEANT | carried)


def note(ledger: Ledger[Simulated], target: str) -> None:
    """Enter each variable into the ledger of answers, once a process."""
    for name in meaningless(os.environ):
        key = (ENVIRONMENT, name)
        if ledger.counter(key) is None:
            record = Simulated(f"environ.{name}", "no-op", target, Site(ENVIRONMENT, 0))
            next(ledger.open(key, note.__code__, record))
