"""From which size MLX pays for an operator: the shipped table, and the one that `torchdevice calibrate` measured here.

Sizes are elements of all tensors of a call together. Measuring is `calibration`; asking before a call is `executor`.
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
# By MLX's own device and kind of rule; a kind that is missing never pays. With MLX on the CPU nothing does: the same
# cores, and a crossing on top. On a GPU only what is plainly more work than a copy is listed; `calibrate` knows more.
SHIPPED: dict[str, dict[str, int]] = {"cpu": {}, "gpu": {"product": 1 << 18}}


@dataclass(frozen=True)
class Costs:
    """What is known of MLX against the CPU: by operator where it was measured, else by kind."""

    by_kind: Mapping[str, int] = field(default_factory=dict)
    by_operator: Mapping[str, int | None] = field(default_factory=dict)
    source: str = "shipped"

    def pays_from(self, operator: str, kind: str) -> int | None:
        """The number of elements; None: never."""
        if operator in self.by_operator:
            return self.by_operator[operator]
        return self.by_kind.get(kind)


def table_path() -> Path:
    """Where the measured table is."""
    return cache_folder() / "mlx-costs.json"


def read_costs(device: str, versions: Mapping[str, str], path: Path | None = None) -> Costs:
    """The measured table if it is of this MLX device and these versions, else the shipped one."""
    shipped = Costs(SHIPPED.get(device, {}))
    path = path or table_path()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # nobody measured, or a disk that was full while writing
        return shipped
    wanted = {"schema": SCHEMA, "device": device, "versions": dict(versions)}
    if not isinstance(found, dict) or any(found.get(name) != value for name, value in wanted.items()):
        return shipped
    measured = found.get("pays_from")
    if not isinstance(measured, dict) or not all(size is None or type(size) is int for size in measured.values()):
        return shipped
    return Costs(shipped.by_kind, measured, str(path))


def write_costs(table: Mapping[str, Any], path: Path | None = None) -> Path:
    """Keep a measured table; what was there is replaced as a whole."""
    path = path or table_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(table, indent=1), encoding="utf-8")
    fresh.replace(path)
    return path


@cache
def costs() -> Costs:
    """The table in force, read once; `costs.cache_clear()` reads it again."""
    return read_costs(device_kind(), versions())


@cache
def device_kind() -> str:
    """What MLX computes on: `gpu` or `cpu`."""
    import mlx.core as mx

    return "gpu" if mx.default_device().type == mx.gpu else "cpu"


def versions() -> dict[str, str]:
    """What a measurement holds for."""
    from importlib.metadata import version

    return {"torch": version("torch"), "mlx": version("mlx")}
