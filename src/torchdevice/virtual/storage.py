"""Storages of a virtual device: constructors, moves, sharing. torch does these in C, a device type at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch.storage import _StorageBase

from torchdevice.virtual.library import Library


def new_storage(size: int, device: torch.device | str) -> torch.UntypedStorage:
    return torch.empty(int(size), dtype=torch.uint8, device=device).untyped_storage()


def install(kind: str, lib: Library) -> None:
    original_new = torch.UntypedStorage.__new__

    def construct(cls: type, *arguments: Any, **options: Any) -> torch.UntypedStorage:
        """UntypedStorage(n, device=…): the C constructor knows only the devices that it was compiled with."""
        device = options.get("device")
        if device is None or torch.device(device).type != kind or "allocator" in options:
            return original_new(cls, *arguments, **options)
        if not arguments:
            return new_storage(0, device)
        if isinstance(arguments[0], int):
            return new_storage(arguments[0], device)
        return new_storage(len(arguments[0]), device).copy_(original_new(cls, arguments[0]), False)

    def move(self: torch.UntypedStorage, device: Any = None, non_blocking: bool = False) -> torch.UntypedStorage:
        target = torch.device(kind, device) if isinstance(device, int) else torch.device(device or kind)
        if self.device.type == kind and target.index in (None, self.device.index):
            return self
        return new_storage(self.nbytes(), target).copy_(self, non_blocking)

    torch.UntypedStorage.__new__ = staticmethod(construct)
    if kind == "mps":
        _StorageBase.mps = move  # torch.load asks for it by this name
