"""Packages that compute by CUDA itself, what to do about each, and the hint for a program that an error of one ended.

`scan` reads the same rows. What such packages are told about torch.cuda while they run is `surface.TRUTH_PACKAGES`.
"""

from __future__ import annotations

import importlib.machinery
import os
import re
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

from torchdevice.answers.rows import TRUTH_PACKAGES
from torchdevice.errors import explain_error

PACKAGES = dict.fromkeys(TRUTH_PACKAGES, "CUDA kernels of its own; look for its path in plain PyTorch") | {
    "triton": "kernels for CUDA; write the operation in torch, or keep a torch path beside it",
    "flash_attn": "CUDA kernels; torch.nn.functional.scaled_dot_product_attention does the same everywhere",
    "xformers": "CUDA kernels; torch.nn.functional.scaled_dot_product_attention does the same everywhere",
    "bitsandbytes": "CUDA kernels; load the model without 4/8-bit quantisation",
    "apex": "CUDA kernels; torch.amp and torch.optim replace it",
    "transformer_engine": "CUDA kernels of NVIDIA",
    "tensorrt": "NVIDIA's runtime",
    "torch_tensorrt": "NVIDIA's runtime",
    "pynvml": "reads NVIDIA's driver; torch.accelerator has memory figures",
    "py3nvml": "reads NVIDIA's driver; torch.accelerator has memory figures",
    "cupy": "arrays on CUDA; use torch or NumPy",
    "pycuda": "CUDA's driver API",
    "numba.cuda": "kernels for CUDA",
    "cudf": "RAPIDS needs CUDA",
    "cuml": "RAPIDS needs CUDA",
    "nvidia.dali": "NVIDIA's data loader; use torch.utils.data",
}

INSTALLED = re.compile("/(?:site|dist)-packages/")
Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def package(name: str) -> tuple[str, str] | None:
    """The row of `PACKAGES` that a module falls under, and what it says."""
    for known, note in PACKAGES.items():
        if name == known or name.startswith(f"{known}."):
            return known, note
    return None


def is_installed(spec: importlib.machinery.ModuleSpec | None) -> bool:
    """Whether a module is of the environment; a package of the same name beside a program is the program's own."""
    folders = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec is not None else []
    return any(INSTALLED.search(f"{folder.replace(os.sep, '/')}/") for folder in folders)


def _is_own(module: str) -> bool:
    """Whether a module is loaded, from somewhere else than the environment."""
    loaded = sys.modules.get(module.partition(".")[0])
    return loaded is not None and not is_installed(loaded.__spec__)


def hint(error: BaseException, device: str) -> str:
    """What to do about an error that such a package raised, or that says that it is missing; empty for any other."""
    if isinstance(error, ModuleNotFoundError):
        module, what = error.name or "", "was imported, and is not available"
    else:
        module, what = _raiser(error), "failed"
    found = package(module)
    if found is None or _is_own(module):
        return ""
    name, note = found
    asked = f"{name} {what}"
    return explain_error(asked, f"the device here is {device}, and {name} computes by CUDA itself", note)


def _raiser(error: BaseException) -> str:
    """The module whose code raised an error."""
    frame, following = None, error.__traceback__
    while following is not None:
        frame, following = following.tb_frame, following.tb_next
    return str(frame.f_globals.get("__name__", "")) if frame is not None else ""


def hinting(show: Hook, device: str) -> Hook:
    """A hook for exceptions that adds the hint to what `show` shows."""

    def excepthook(kind: type[BaseException], value: BaseException, tb: TracebackType | None) -> None:
        show(kind, value, tb)
        said = hint(value, device)
        if said and sys.stderr is not None:
            sys.stderr.write(f"torchdevice: {said}\n")

    return excepthook
