"""Memory figures of the virtual devices in the shapes that torch.cuda and torch.xpu expect, and their limit."""

from __future__ import annotations

import os
import re
from typing import Any

from torchdevice.errors import ConfigError, explain_error
from torchdevice.virtual.library import Library

LIMIT_VARIABLE = "TORCHDEVICE_VIRTUAL_MEMORY"
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_BYTE_STATS = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")
_BLOCK_STATS = ("allocation", "segment", "active")
_EMPTY_STATS = ("inactive_split", "inactive_split_bytes")
_ZERO = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}


def parse_size(text: str) -> int:
    """`2GiB`, `512M`, `1e9`, `1073741824` → bytes. GB and GiB both mean 1024³, as everywhere in torch's messages."""
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.I)
    if match is None:
        raise ConfigError(
            explain_error(
                f"{LIMIT_VARIABLE}={text!r}", "that is not a size", "write for example 2GiB, 512MiB or 1000000."
            )
        )
    return int(float(match[1]) * 1024 ** _UNITS[match[2].lower()])


def limit_from_environment() -> int:
    """Bytes a device may hold; 0 for no limit."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    return parse_size(text) if text else 0


def physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def nested_stats(lib: Library, device: int) -> dict[str, Any]:
    """What `torch._C._cuda_memoryStats` returns."""
    u = lib.usage(device)
    of_bytes = dict(zip(_ZERO, (u.bytes, u.bytes_peak, u.bytes_allocated, u.bytes_freed), strict=True))
    of_blocks = dict(zip(_ZERO, (u.blocks, u.blocks_peak, u.blocks_allocated, u.blocks_freed), strict=True))

    def pools(values: dict[str, int]) -> dict[str, dict[str, int]]:
        return {"all": dict(values), "small_pool": dict(_ZERO), "large_pool": dict(values)}

    stats: dict[str, Any] = {name: pools(of_bytes) for name in _BYTE_STATS}
    stats.update({name: pools(of_blocks) for name in _BLOCK_STATS})
    stats.update({name: pools(_ZERO) for name in _EMPTY_STATS})
    stats.update(oversize_allocations=dict(_ZERO), oversize_segments=dict(_ZERO))
    stats.update(num_alloc_retries=0, num_ooms=u.ooms, max_split_size=-1, num_sync_all_streams=0)
    stats.update(num_device_alloc=u.blocks_allocated, num_device_free=u.blocks_freed)
    return stats


def free_and_total(lib: Library, device: int, capacity: int) -> tuple[int, int]:
    total = lib.call("limit", device) or capacity
    return max(0, total - lib.usage(device).bytes), total
