"""Packages that compute by CUDA itself, what to do about each, and the hint for a program that an error of one ended.

`scan` reads the same rows. What such packages are told about torch.cuda while they run is `rows.TRUTH_PACKAGES`; those
with a stand-in are in `packages.table` too.
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
    "diff_gaussian_rasterization": "CUDA kernels; a rasterizer in plain PyTorch does the same slowly",
    "simple_knn": "CUDA kernels; torch.cdist and topk find the same neighbours",
    "gsplat": "CUDA kernels; a rasterizer in plain PyTorch does the same slowly",
    "nvdiffrast": "CUDA kernels; look for a rasterizer in plain PyTorch",
    "tinycudann": "CUDA kernels; write the network and its encoding in torch",
    "MinkowskiEngine": "CUDA kernels for sparse convolutions; look for a path in plain PyTorch",
    "spconv": "CUDA kernels for sparse convolutions; look for a path in plain PyTorch",
}
NOT_IN_STAND_IN = "docs/packages.md lists what it has; look for a path in plain PyTorch"
SWITCHED_OFF = "TORCHDEVICE_PACKAGES=1, or `torchdevice run` without --no-packages, computes it by torch"
SOURCES = (".cu", ".cuh")
NAMED = 3  # how many sources or submodules a message names
# A program may lie in somebody's home folder: the search for sources ends after so many folders.
_FOLDERS = 2000
_LARGEST_LIST = 64 << 10  # of submodules; a longer one is generated, or meant to do harm


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
    return loaded is not None and not is_installed(loaded.__spec__) and not _stands_in(module)


def _stands_in(module: str) -> bool:
    """Whether the package of a module is loaded, and is a stand-in of ours."""
    finder = sys.modules.get("torchdevice.packages.finder")  # loaded where stand-ins are on
    return finder is not None and finder.finder.stands_in(module.partition(".")[0])


def submodules(folder: Path) -> list[str]:
    """The git submodules that a repository's folder lists, whether they were fetched or not."""
    try:
        text = read_regular(folder / ".gitmodules", _LARGEST_LIST).decode("utf-8", "replace")
    except (OSError, ValueError):  # none, or none that anybody wrote
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
    """The first of them, and how many more there are."""
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


@dataclass(frozen=True)
class Refusal:
    """A package that ended a program, what is said about it, and the line of user code."""

    package: str
    text: str
    site: Site


def hint(error: BaseException, device: str) -> str:
    """What to do about an error that such a package raised, or that says that it is missing; empty for any other.

    Such an error ends a program and is counted as unsupported.
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
        decided = f"the device here is {device}, {top} is not installed, and its stand-in lacks that"
        return Refusal(top, explain_error(str(error), decided, NOT_IN_STAND_IN), site)
    if missing and top in table.PACKAGES:
        decided = f"the device here is {device}, {top} is not installed, and stand-ins are off or not asked"
        return Refusal(top, explain_error(f"{top} was imported, and is not available", decided, SWITCHED_OFF), site)
    found = package(module)
    if found is not None:
        name, note = found
        what = "was imported, and is not available" if missing else "failed"
        decided = f"the device here is {device}, and {name} computes by CUDA itself"
        return Refusal(name, explain_error(f"{name} {what}", decided, note), site)
    if missing and lines and _is_users(lines[-1][0].f_code.co_filename):
        return _built_from_sources(module.partition(".")[0], device, site)
    return None


def _built_from_sources(name: str, device: str, site: Site) -> Refusal | None:
    """A package that nobody installed, in a program that comes with CUDA sources or git submodules."""
    tree = _tree_of(Path(site.file))
    parts = {"CUDA sources": cuda_sources(tree), "git submodules": submodules(tree)}
    said = " and ".join(f"{what} ({listed(names)})" for what, names in parts.items() if names)
    if not said:
        return None
    text = explain_error(
        f"{name} was imported, and is not available",
        f"the program comes with {said}, and CUDA sources cannot be compiled for the device here, {device}",
        f"if {name} is built from them, look for its path in plain PyTorch; if it is not, install it",
    )
    return Refusal(name, text, site)


def _tree_of(file: Path) -> Path:
    """The repository that a file is in; without one, its folder."""
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
