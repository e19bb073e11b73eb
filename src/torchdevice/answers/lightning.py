"""Lightning's own device checks and accelerator names, in all four of its packages.

Lightning gets everything else from torch. This module does not import Lightning.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from torchdevice.answers.audience import Audience
from torchdevice.answers.outside import Later, OutsideRow
from torchdevice.answers.rows import Kind, Row
from torchdevice.translate.engine import dress


def accepting_the_target(original: Any, path: str, row: Row, audience: Audience) -> Any:
    """An adapter for a check that a device has type `cuda`. It also accepts the target."""

    def set_up(self: Any, device: Any) -> Any:
        translator = audience.translator
        if not translator.in_force or device.type != translator.host.type:
            return original(self, device)
        audience.note(row, path)
        return torch.cuda.set_device(device)

    return dress(set_up, original, path)


def mps_as_cuda(original: Any, path: str, row: Row, audience: Audience) -> Any:
    """Maps `accelerator="mps"` to `"cuda"`: the first requires a Mac's processor, and the second always works."""

    def get(self: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        translator = audience.translator
        is_mac = sys.platform == "darwin" and translator.host.type == "mps"  # False for a virtual mps on Linux
        if name == "mps" and translator.in_force and not is_mac:
            audience.note(row, path)
            name = "cuda"
        return original(self, name, *args, **kwargs)

    return dress(get, original, path)


CHECKS = tuple(
    OutsideRow(
        f"{package}.accelerators.cuda.CUDAAccelerator.setup_device",
        Kind.MAPPED,
        "accepts the target as a GPU",
        accepting_the_target,
    )
    for package in ("lightning.fabric", "lightning.pytorch", "lightning_fabric", "pytorch_lightning")
)
REGISTRIES = tuple(
    OutsideRow(
        f"{package}.accelerators.registry._AcceleratorRegistry.get",
        Kind.MAPPED,
        '`"mps"` selects the accelerator for CUDA, except on a Mac with a GPU',
        mps_as_cuda,
    )
    for package in ("lightning.fabric", "lightning_fabric")
)


def _later(rows: tuple[OutsideRow, ...]) -> Later:
    """Rows that are applied when Lightning's module defines the class."""
    paths = [(row.path.split("."), row) for row in rows]
    return tuple((".".join(path[:-2]), path[-2], (row,)) for path, row in paths)


CHECKS_LATER, REGISTRIES_LATER = _later(CHECKS), _later(REGISTRIES)
