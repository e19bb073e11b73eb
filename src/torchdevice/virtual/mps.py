"""The Python side of virtual `mps`: what torch.mps and torch.backends.mps ask of torch._C."""

from __future__ import annotations

import torch

from torchdevice.virtual import compilers, storage
from torchdevice.virtual.library import Library
from torchdevice.virtual.patches import put

NAME = "Virtual Apple GPU"
CORES = 8


def install(lib: Library, count: int) -> None:
    def get_name() -> str:
        return NAME

    def get_core_count() -> int:
        return CORES

    def is_capture_enabled() -> bool:
        return False  # Metal frame captures need Xcode

    def is_capturing() -> bool:
        return False

    def is_in_bad_fork() -> bool:
        return False  # a forked child can use the device: there is no driver to lose

    put(
        torch._C,
        {
            "_has_mps": True,  # torch.backends.mps.is_built()
            "_mps_get_name": get_name,  # Metal's device name, in C only on macOS
            "_mps_get_core_count": get_core_count,
            "_mps_isCaptureEnabled": is_capture_enabled,
            "_mps_isCapturing": is_capturing,
            "_mps_is_in_bad_fork": is_in_bad_fork,
        },
    )
    # They remember their answer from before.
    for function in (torch.backends.mps.is_available, torch.backends.mps.is_macos_or_newer):
        function.cache_clear()
    storage.install("mps", lib)
    compilers.install("mps")
