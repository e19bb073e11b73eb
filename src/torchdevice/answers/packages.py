"""Packages with their own CUDA code, the advice for each, and the hint for a program that one of them stopped.

`scan` reads the same rows. `rows.TRUTH_PACKAGES` lists the packages that get the original functions of torch.cuda.
Packages with a stand-in are also in `packages.table`.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchdevice.answers.rows import TRUTH_PACKAGES, Kind
from torchdevice.errors import explain_error
from torchdevice.ledger import Simulated, Site, simulations
from torchdevice.packages import table
from torchdevice.reading import read_regular
from torchdevice.translate.callers import INSTALLED

PACKAGES = dict.fromkeys(TRUTH_PACKAGES, "its own CUDA kernels; use its implementation in plain PyTorch, if any") | {
    "triton": "kernels for CUDA; write the operation in torch, or add an implementation in torch",
    "flash_attn": "CUDA kernels; torch.nn.functional.scaled_dot_product_attention does the same everywhere",
    "xformers": "CUDA kernels; torch.nn.functional.scaled_dot_product_attention does the same everywhere",
    "bitsandbytes": "its CPU backend lacks some functions; load the model without 4/8-bit quantization",
    "apex": "CUDA kernels; torch.amp and torch.optim replace it",
    "transformer_engine": "CUDA kernels by NVIDIA",
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
    "diff_gaussian_rasterization": "CUDA kernels; a rasterizer in plain PyTorch does the same slowly",
    "simple_knn": "CUDA kernels; torch.cdist and topk find the same neighbors",
    "gsplat": "CUDA kernels; a rasterizer in plain PyTorch does the same slowly",
    "nvdiffrast": "CUDA kernels; use a rasterizer in plain PyTorch",
    "tinycudann": "CUDA kernels; write the network and its encoding in torch",
    "MinkowskiEngine": "CUDA kernels for sparse convolutions; use an implementation in plain PyTorch",
    "spconv": "CUDA kernels for sparse convolutions; use an implementation in plain PyTorch",
}
# Packages that can be installed without CUDA and then compute on the CPU.
WITH_CPU_BACKEND = frozenset({"bitsandbytes"})
NOT_IN_STAND_IN = "docs/packages.md lists the contents of stand-ins; use an implementation in plain PyTorch"
SWITCHED_OFF = "set TORCHDEVICE_PACKAGES=1, or use `torchdevice run` without --no-packages, to compute it with torch"
SOURCES = (".cu", ".cuh")
NAMED = 3  # the number of sources or submodules that a message names
# The search for sources stops after this number of folders, because a program may be in a home folder.
_FOLDERS = 2000
_LARGEST_LIST = 64 << 10  # bytes of a list of submodules; a longer file is generated or malicious


def package(name: str) -> tuple[str, str] | None:
    """The name and the text of the row of `PACKAGES` for a module."""
    for known, note in PACKAGES.items():
        if name == known or name.startswith(f"{known}."):
            return known, note
    return None


def is_installed(spec: importlib.machinery.ModuleSpec | None) -> bool:
    """Whether a module is installed in the environment. A package of the same name may be part of the program."""
    folders = [spec.origin or "", *(spec.submodule_search_locations or ())] if spec is not None else []
    return any(INSTALLED.search(f"{folder.replace(os.sep, '/')}/") for folder in folders)


def _is_own(module: str) -> bool:
    """Whether a module is loaded from outside the environment."""
    loaded = sys.modules.get(module.partition(".")[0])
    return loaded is not None and not is_installed(loaded.__spec__) and not _stands_in(module)


def _stands_in(module: str) -> bool:
    """Whether the package of a module is loaded and is a stand-in."""
    finder = sys.modules.get("torchdevice.packages.finder")  # loaded if stand-ins are enabled
    return finder is not None and finder.finder.stands_in(module.partition(".")[0])


def submodules(folder: Path) -> list[str]:
    """The git submodules that a repository's folder lists, whether they were fetched or not."""
    try:
        text = read_regular(folder / ".gitmodules", _LARGEST_LIST).decode("utf-8", "replace")
    except (OSError, ValueError):  # no file, or not a plausible one
        return []
    rows = (line.partition("=") for line in text.splitlines())
    return [value.strip() for name, _, value in rows if name.strip() == "path" and value.strip()]


def cuda_sources(folder: Path) -> list[str]:
    """CUDA sources below a folder."""
    found: list[str] = []
    for number, (place, folders, files) in enumerate(os.walk(folder)):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [os.path.relpath(os.path.join(place, name), folder) for name in files if name.endswith(SOURCES)]
        if number >= _FOLDERS:
            break
    return sorted(found)


def listed(names: Sequence[str]) -> str:
    """The first names, and the number of the others."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


@dataclass(frozen=True)
class Refusal:
    """A package that stopped a program, the message about it, and the line of user code."""

    package: str
    text: str
    site: Site


def hint(error: BaseException, device: str) -> str:
    """The advice for an error that such a package raised, or for its absence; empty for other errors.

    The error is counted as unsupported.
    """
    found = refusal(error, device)
    if found is None:
        return ""
    simulations.enter(Simulated(f"import {found.package}", Kind.UNSUPPORTED.value, device, found.site))
    return found.text


def refusal(error: BaseException, device: str) -> Refusal | None:
    """The hint with the package and the place."""
    lines = list(traceback.walk_tb(error.__traceback__))
    missing = isinstance(error, ModuleNotFoundError)
    lacking = isinstance(error, ImportError) and _stands_in(error.name or "")
    module = (error.name or "") if missing or lacking else _raiser(error)  # type: ignore[attr-defined]
    if not module or _is_own(module):
        return None
    users = [Site(frame.f_code.co_filename, line) for frame, line in lines if _is_users(frame.f_code.co_filename)]
    site = users[-1] if users else Site("<unknown>", 0)
    top = module.partition(".")[0]
    if lacking:
        decided = f"the device here is {device}, {top} is not installed, and its stand-in lacks this name"
        return Refusal(top, explain_error(str(error), decided, NOT_IN_STAND_IN), site)
    if missing and top in table.PACKAGES:
        decided = f"the device here is {device}, {top} is not installed, and stand-ins are disabled or do not apply"
        return Refusal(top, explain_error(f"{top} was imported, and is not available", decided, SWITCHED_OFF), site)
    found = package(module)
    if found is not None:
        name, note = found
        what = "was imported, and is not available" if missing else "failed"
        needs = "needs CUDA"
        if name in WITH_CPU_BACKEND:
            needs = "is not installed" if missing else "has no CPU code for this"
            note = f"install {name}; it has a CPU backend" if missing else note
        decided = f"the device here is {device}, and {name} {needs}"
        return Refusal(name, explain_error(f"{name} {what}", decided, note), site)
    if missing and lines and _is_users(lines[-1][0].f_code.co_filename):
        return _built_from_sources(module.partition(".")[0], device, site)
    return None


def _built_from_sources(name: str, device: str, site: Site) -> Refusal | None:
    """The message for a missing package in a program that contains CUDA sources or git submodules."""
    tree = _tree_of(Path(site.file))
    parts = {"CUDA sources": cuda_sources(tree), "git submodules": submodules(tree)}
    said = " and ".join(f"{what} ({listed(names)})" for what, names in parts.items() if names)
    if not said:
        return None
    text = explain_error(
        f"{name} was imported, and is not available",
        f"the program contains {said}, and CUDA sources cannot be compiled for the device here, {device}",
        f"if {name} is built from them, use an implementation in plain PyTorch; otherwise install it",
    )
    return Refusal(name, text, site)


def _tree_of(file: Path) -> Path:
    """The repository that contains a file; without one, the folder of the file."""
    folders = file.absolute().parents
    return next((each for each in folders if (each / ".git").exists() or (each / ".gitmodules").exists()), folders[0])


def _is_users(file: str) -> bool:
    return not INSTALLED.search(file.replace(os.sep, "/")) and os.path.isfile(file)


def _raiser(error: BaseException) -> str:
    """The module whose code raised an error."""
    frame, following = None, error.__traceback__
    while following is not None:
        frame, following = following.tb_frame, following.tb_next
    return str(frame.f_globals.get("__name__", "")) if frame is not None else ""
