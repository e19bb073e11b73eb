"""Lightning's own ideas of a device, under its four names: what it insists on, and which accelerator a name stands for.

Everything else that Lightning asks is asked of torch, and answered there. Nothing of Lightning is imported here.
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
    """A check that a device is of type `cuda`: what Lightning's request for `cuda` became passes as well."""

    def set_up(self: Any, device: Any) -> Any:
        translator = audience.translator
        if not translator.in_force or device.type != translator.host.type:
            return original(self, device)
        audience.note(row, path)
        return torch.cuda.set_device(device)

    return dress(set_up, original, path)


def mps_as_cuda(original: Any, path: str, row: Row, audience: Audience) -> Any:
    """`accelerator="mps"` wants a Mac's processor, beside what torch says; `"cuda"` is here, or answered for."""

    def get(self: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        translator = audience.translator
        is_mac = sys.platform == "darwin" and translator.host.type == "mps"  # not a virtual device elsewhere
        if name == "mps" and translator.in_force and not is_mac:
            audience.note(row, path)
            name = "cuda"
        return original(self, name, *args, **kwargs)

    return dress(get, original, path)


CHECKS = tuple(
    OutsideRow(
        f"{package}.accelerators.cuda.CUDAAccelerator.setup_device",
        Kind.MAPPED,
        "takes the target for a GPU",
        accepting_the_target,
    )
    for package in ("lightning.fabric", "lightning.pytorch", "lightning_fabric", "pytorch_lightning")
)
REGISTRIES = tuple(
    OutsideRow(
        f"{package}.accelerators.registry._AcceleratorRegistry.get",
        Kind.MAPPED,
        '`"mps"` is the accelerator for CUDA, except for the GPU of a Mac',
        mps_as_cuda,
    )
    for package in ("lightning.fabric", "lightning_fabric")
)


def _later(rows: tuple[OutsideRow, ...]) -> Later:
    """Applied when Lightning's module defines the class."""
    paths = [(row.path.split("."), row) for row in rows]
    return tuple((".".join(path[:-2]), path[-2], (row,)) for path, row in paths)


CHECKS_LATER, REGISTRIES_LATER = _later(CHECKS), _later(REGISTRIES)
