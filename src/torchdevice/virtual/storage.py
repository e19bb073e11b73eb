"""Storages of a virtual device: constructors, moves, sharing. torch does these in C, a device type at a time."""

from __future__ import annotations

from typing import Any

import torch

from torchdevice._torch import builds
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

    def resize(self: torch.UntypedStorage, size: int) -> torch.UntypedStorage:
        if self.device.type != kind or kind == "mps":  # the real MPS cannot either, and says so
            return original_resize(self, size)
        lib.call("resize", self._cdata, size)
        return self

    original_resize = torch.UntypedStorage.resize_
    torch.UntypedStorage.resize_ = resize
    torch.UntypedStorage.__new__ = staticmethod(construct)
    if kind == "cuda":
        _share_between_processes(lib)
    if kind == "mps":
        builds.StorageBase.mps = move  # torch.load asks for it by this name


def _share_between_processes(lib: Library) -> None:
    """CUDA's IPC handles: the bytes move into shared memory once, and every process maps the same ones."""
    shared: dict[int, torch.UntypedStorage] = {}

    def share(self: torch.UntypedStorage) -> tuple[Any, ...]:
        home = shared.get(self.data_ptr())
        if home is None:
            home = builds.new_shared_memory(self.nbytes())
            home.copy_(self.cpu())
            lib.call("adopt", self._cdata, home._cdata)
            shared[self.data_ptr()] = home
        return (self.device.index, builds.handle_of(home), self.nbytes(), 0, b"", 0, b"", False)

    def attach(cls: type, device: int, handle: tuple[Any, ...], size: int, *_: Any) -> torch.UntypedStorage:
        home = builds.shared_memory_at(handle)
        attached = new_storage(0, torch.device("cuda", device))
        lib.call("adopt", attached._cdata, home._cdata)
        return attached

    def release(cls: type, *_: Any, **__: Any) -> None:
        """Shared memory counts its users itself."""

    builds.share_between_processes(share, attach, release)
