"""Which backend of torch.distributed replaces which on a host, the class `ProcessGroupNCCL`, and NCCL's variables.

The list of backends and their devices is read from torch. In a torch without NCCL or XCCL, a gloo group has that class
name, because code uses it for its options and for `isinstance`. One of NCCL's environment variables is translated for
gloo; the others have no effect and are reported once.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from torchdevice.ledger import Ledger, Simulated, Site
from torchdevice.policy.hosts import Host, is_accelerator

MEANINGLESS = re.compile(r"(NCCL|TORCH_NCCL|RCCL|CUDA)_[A-Z0-9_]+")
# Supported (a count of devices), read by build tools, or set by torchrun for every worker.
MEANT = frozenset(
    {"CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "CUDA_VERSION", "CUDA_MODULE_LOADING"}
    | {"TORCH_NCCL_ASYNC_ERROR_HANDLING"}
)
# The network interface to use, which a cluster's scripts set for NCCL.
NCCL_INTERFACE, GLOO_INTERFACE = "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"
ENVIRONMENT = "<environment>"


def interface(asked: str, there: Sequence[str]) -> str | None:
    """The first interface that matches NCCL's rule: prefixes, `=` for exact names, `^` to exclude."""
    exact, others = asked.startswith(("=", "^=")), asked.startswith("^")
    wanted = [name for name in asked.lstrip("^=").split(",") if name]

    def fits(name: str) -> bool:
        named = any(name == each if exact else name.startswith(each) for each in wanted)
        return named != others

    return next((name for name in there if fits(name) and (name != "lo" or not others)), None)


def carry_over() -> Callable[[], object]:
    """Set gloo's interface to NCCL's, unless gloo's is set already. Returns the undo."""
    asked = os.environ.get(NCCL_INTERFACE)
    if asked and not os.environ.get(GLOO_INTERFACE):
        chosen = interface(asked, [name for _, name in socket.if_nameindex()])
        if chosen is not None:
            os.environ[GLOO_INTERFACE] = chosen
            return lambda: os.environ.pop(GLOO_INTERFACE, None)
    return lambda: None


def meaningless(environ: Mapping[str, str]) -> Iterator[str]:
    """The names of NCCL's variables that have no effect, in order."""
    carried = {NCCL_INTERFACE} if environ.get(GLOO_INTERFACE) else set()
    return (name for name in sorted(environ) if MEANINGLESS.fullmatch(name) and name not in MEANT | carried)


def note(ledger: Ledger[Simulated], target: str) -> None:
    """Record each such variable in the ledger of answers, once per process."""
    for name in meaningless(os.environ):
        ledger.enter(Simulated(f"environ.{name}", "no-op", target, Site(ENVIRONMENT, 0)))


EVERYWHERE = "gloo"  # the backend that every build has


def vendors() -> dict[str, str]:
    """Backends that serve only one type of accelerator, with that type: `{"nccl": "cuda", "xccl": "xpu"}`."""
    if not dist.is_available():
        return {}
    table, serves = dist.Backend.default_device_backend_map, dist.Backend.backend_capability
    return {
        str(name): kind
        for kind, name in table.items()
        if is_accelerator(kind) and "cpu" not in serves.get(name, ["cpu"])
    }


def own(kind: str) -> str:
    """The default backend of this device type, if torch is built with it."""
    name = str(dist.Backend.default_device_backend_map.get(kind, EVERYWHERE))
    available = getattr(dist, f"is_{name}_available", None)
    return name if available is None or available() else EVERYWHERE


def stand_in(asked: str, host: Host) -> str:
    """The backend to request instead of `asked`, in any of its spellings; `asked` itself if it is available."""
    homes = vendors()
    name = asked.lower()
    if ":" not in name:
        missing = homes.get(name, host.type) != host.type
        return own(host.type) if missing else asked
    given: dict[str, str] = {}
    for pair in name.split(","):
        kind, _, backend = pair.partition(":")
        if not kind or not backend or ":" in backend:
            return asked  # invalid: torch raises an error
        if homes.get(backend, host.type) != host.type:
            backend = own(host.type)
        # A pair for a device of this host takes precedence over one for a device that is folded onto it.
        here = not is_accelerator(kind) or kind == host.type
        if here:
            given[kind] = backend
        else:
            given.setdefault(host.type, backend)
    spelled = ",".join(f"{kind}:{backend}" for kind, backend in given.items())
    if spelled == name:
        return asked
    return EVERYWHERE if set(given.values()) == {EVERYWHERE} else spelled


def names_vendor(text: str) -> bool:
    """Whether a backend string names a vendor's backend: `nccl`, `NCCL`, `cpu:gloo,cuda:nccl`."""
    parts = [pair.rpartition(":") for pair in text.lower().split(",")]
    return any(part[2] in vendors() for part in parts) and all(
        part[2].isidentifier() and (not part[1] or part[0].isidentifier()) for part in parts
    )


# The backend that user code requested, by group name, for groups that have another backend.
asked: dict[str, str] = {}


# Code that names NCCL expects NCCL's timeout, not gloo's 30 minutes. torch has the value only if built with NCCL.
VENDOR_TIMEOUT = timedelta(minutes=10)


class Options(SimpleNamespace):
    """ProcessGroupNCCL.Options: every field can be set, only the timeout has an effect."""

    def __init__(self, is_high_priority_stream: bool = False, **fields: Any) -> None:
        given = {"_timeout": VENDOR_TIMEOUT, "config": SimpleNamespace(), **fields}
        super().__init__(is_high_priority_stream=is_high_priority_stream, **given)


def group_class(name: str) -> Any:
    """A class `ProcessGroup<name>` on gloo; None if torch has no gloo."""
    gloo = getattr(c10d, "ProcessGroupGloo", None)
    if gloo is None:
        return None

    def start(self: Any, store: Any, rank: int, size: int, options: Any = None, device: Any = None) -> None:
        timeout = getattr(options, "_timeout", None) or c10d.default_pg_timeout
        gloo.__init__(self, store, rank, size, timeout=timeout)

    def split(self: Any, store: Any, ranks: Sequence[int], options: Any = None) -> Any:
        return type(self)(store, list(ranks).index(c10d.get_rank()), len(ranks), options)

    body = {
        "__init__": start,
        "split": split,  # called from 2.14 on, for groups that are bound to a device
        "__module__": c10d.__name__,
        "Options": Options,
        "_group_start": lambda self: None,
        "_group_end": lambda self: None,
        "_shutdown": lambda self: None,
        "abort": lambda self: None,
        "perform_nocolor_split": lambda self, device: None,
    }
    return type(f"ProcessGroup{name}", (gloo,), body)
