"""Which backend of torch.distributed stands for which on a host. Pure: strings in, strings out.

Which backends there are, and for which device each is made, is read from torch.
"""

from __future__ import annotations

import torch.distributed as dist

from torchdevice.policy.hosts import Host, is_accelerator

EVERYWHERE = "gloo"  # the backend that every build has


def vendors() -> dict[str, str]:
    """Backends that one kind of accelerator has for itself, with that kind: `{"nccl": "cuda", "xccl": "xpu"}`."""
    if not dist.is_available():
        return {}
    table, serves = dist.Backend.default_device_backend_map, dist.Backend.backend_capability
    return {
        str(name): kind
        for kind, name in table.items()
        if is_accelerator(kind) and "cpu" not in serves.get(name, ["cpu"])
    }


def own(kind: str) -> str:
    """The backend that a device of this type uses by itself, where torch is built with it."""
    name = str(dist.Backend.default_device_backend_map.get(kind, EVERYWHERE))
    available = getattr(dist, f"is_{name}_available", None)
    return name if available is None or available() else EVERYWHERE


def stand_in(asked: str, host: Host) -> str:
    """What to ask torch for instead of `asked`, in any of its spellings; `asked` itself where nothing is missing."""
    homes = vendors()
    name = asked.lower()
    if ":" not in name:
        missing = homes.get(name, host.type) != host.type
        return own(host.type) if missing else asked
    given: dict[str, str] = {}
    for pair in name.split(","):
        kind, _, backend = pair.partition(":")
        if not kind or not backend or ":" in backend:
            return asked  # torch says what is wrong with it
        if homes.get(backend, host.type) != host.type:
            backend = own(host.type)
        # A pair for a device that is here wins over one for a device that is folded onto it.
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
    """Whether a string is a backend's name that involves a vendor's: `nccl`, `NCCL`, `cpu:gloo,cuda:nccl`."""
    parts = [pair.rpartition(":") for pair in text.lower().split(",")]
    return any(part[2] in vendors() for part in parts) and all(
        part[2].isidentifier() and (not part[1] or part[0].isidentifier()) for part in parts
    )
