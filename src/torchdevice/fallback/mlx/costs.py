"""From which size MLX is faster for an operator: the shipped table, and the one that `torchdevice calibrate` measured.

A size is the number of elements of all tensors of a call. `calibration` measures; `executor` uses the table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from torchdevice.config import cache_folder

SCHEMA = 1
# By MLX's device and kind of rule. For a kind that is missing MLX is never used. MLX on the CPU is never faster: it has
# the same cores and needs a copy. On a GPU only kinds with clearly more work than a copy are listed.
SHIPPED: dict[str, dict[str, int]] = {"cpu": {}, "gpu": {"product": 1 << 18}}


@dataclass(frozen=True)
class Costs:
    """The sizes from which MLX is faster than the CPU: per operator if measured, else per kind."""

    by_kind: Mapping[str, int] = field(default_factory=dict)
    by_operator: Mapping[str, int | None] = field(default_factory=dict)
    source: str = "shipped"

    def pays_from(self, operator: str, kind: str) -> int | None:
        """The number of elements; None: never."""
        if operator in self.by_operator:
            return self.by_operator[operator]
        return self.by_kind.get(kind)


def table_path() -> Path:
    """The path of the measured table."""
    return cache_folder() / "mlx-costs.json"


def read_costs(device: str, versions: Mapping[str, str], path: Path | None = None) -> Costs:
    """The measured table if it is for this MLX device and these versions, else the shipped one."""
    shipped = Costs(SHIPPED.get(device, {}))
    path = path or table_path()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # not measured, or the disk was full while writing
        return shipped
    wanted = {"schema": SCHEMA, "device": device, "versions": dict(versions)}
    if not isinstance(found, dict) or any(found.get(name) != value for name, value in wanted.items()):
        return shipped
    measured = found.get("pays_from")
    if not isinstance(measured, dict) or not all(size is None or type(size) is int for size in measured.values()):
        return shipped
    return Costs(shipped.by_kind, measured, str(path))


def write_costs(table: Mapping[str, Any], path: Path | None = None) -> Path:
    """Write a measured table; an existing one is replaced."""
    path = path or table_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(table, indent=1), encoding="utf-8")
    fresh.replace(path)
    return path


@cache
def costs() -> Costs:
    """The present table, read once; after `costs.cache_clear()` it is read again."""
    return read_costs(device_kind(), versions())


@cache
def device_kind() -> str:
    """The device of MLX: `gpu` or `cpu`."""
    import mlx.core as mx

    return "gpu" if mx.default_device().type == mx.gpu else "cpu"


def versions() -> dict[str, str]:
    """The versions for which a measurement is valid."""
    from importlib.metadata import version

    return {"torch": version("torch"), "mlx": version("mlx")}
