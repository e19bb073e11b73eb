"""How translation treats a construct: first the rows of the runtime, then constructs that no row covers.

This module only looks things up in `translate.points`, `answers.rows`, `answers.outside` and `distributed.backends`,
which define what translation does. `answers.packages` lists packages that need CUDA.
"""

from __future__ import annotations

import functools
import inspect
import re
from dataclasses import dataclass
from typing import Any

import torch

from torchdevice._torch.core import device_types
from torchdevice.answers.outside import BUILDERS, OUTSIDE
from torchdevice.answers.rows import ANSWERS, SUBMODULES, SURFACE, Kind
from torchdevice.distributed import backends
from torchdevice.policy.hosts import is_accelerator, this_host
from torchdevice.translate.points import MODULE, TENSOR, all_points

HANDLED, SIMULATED, CHANGED, UNKNOWN, UNSUPPORTED = "handled", "simulated", "changed", "unknown", "unsupported"
TITLES = {
    HANDLED: "Handled by translation",
    SIMULATED: "Simulated",
    CHANGED: "Works, but may behave differently",
    UNKNOWN: "Unknown: depends on what is installed",
    UNSUPPORTED: "Cannot work without CUDA",
}


@dataclass(frozen=True)
class Known:
    """The group of a construct, and the text that is printed for it."""

    group: str
    note: str


GROUPS = {
    Kind.MAPPED: HANDLED,
    Kind.SIMULATED: SIMULATED,
    Kind.NO_OP: SIMULATED,
    Kind.UNSUPPORTED: UNSUPPORTED,
}

BUILDER_PATHS = frozenset(row.path for row in BUILDERS)
CUDA_EXTENSION = "torch.utils.cpp_extension.CUDAExtension"
CUDA_SOURCES = "CUDA sources are compiled by nvcc; only C++ can be built here"

COMMANDS = {
    "nvidia-smi": "NVIDIA's tool; `torchdevice doctor` shows the devices of this machine",
    "nvcc": "NVIDIA's compiler",
}

# These work, but behave differently on some target.
DTYPES = {
    "torch.float64": "MPS has no float64: it becomes float32 there",
    "torch.double": "MPS has no float64: it becomes float32 there",
    "torch.complex128": "MPS has no complex128: it becomes complex64 there",
    "torch.cdouble": "MPS has no complex128: it becomes complex64 there",
}
DOUBLE = "MPS has no float64: it becomes float32 there"
TYPE_CHECK = "tensors report their real device type, which may differ from the one compared with"
INTERFACE = "__cuda_array_interface__"
INTERFACES = "needs an address in CUDA memory, which other devices do not have"
NO_INTERFACE = "tensors have none unless they are on CUDA"
NEEDED = "neither the tree nor the environment has it; it may be built from the tree's {}"
STAND_IN = "handled by a stand-in: {}"
NO_STAND_IN = "the stand-in has no {}; docs/packages.md lists what it has"
GUARDED = "optional: the import is guarded, so the program has another way"

NCCL = "torch.distributed.init_process_group"
PATTERN_OF_DEVICE = r"(?:{types})(?::\d*)?"
PATTERN_OF_TYPE = r"torch\.(?:{types})\.(?:sparse\.)?\w+Tensor"


class Tables:
    """The runtime's tables for the installed torch, indexed by the names that user code writes."""

    def __init__(self) -> None:
        points = list(all_points())
        self._paths = {point.path for point in points}
        self._by_identity = {id(found) for point in points if (found := _owner_or_self(point.path)) is not None}
        self.accelerators = frozenset(kind for kind in device_types() if is_accelerator(kind))
        methods = {point.path.rpartition(".")[2] for point in points if point.path.startswith((TENSOR, MODULE))}
        self.movers = self.accelerators & methods
        self.taking_device = frozenset(methods - self.accelerators)
        self._host = this_host()
        target = self._host.type
        self._surface = {
            (space, row.name): Known(GROUPS[row.kind], getattr(ANSWERS[row.answer], target, ANSWERS[row.answer].cpu))
            for space, rows in SURFACE.items()
            for row in rows
        }
        self._neighbours = {row.path: Known(GROUPS[row.kind], row.answer) for row in OUTSIDE}
        types = "|".join(sorted(self.accelerators))
        self._device = re.compile(PATTERN_OF_DEVICE.format(types=types))
        self._legacy_type = re.compile(PATTERN_OF_TYPE.format(types=types))

    def is_device(self, value: object) -> bool:
        """Whether a constant names an accelerator as torch parses it: a device, or a tensor type of one."""
        return isinstance(value, str) and (
            self._device.fullmatch(value) is not None or self._legacy_type.fullmatch(value) is not None
        )

    def is_point(self, path: str) -> bool:
        """Whether the runtime has a row for the object that user code calls by this path."""
        if path in self._paths:
            return True
        found = _resolved(path)
        return found is not None and id(found) in self._by_identity

    def of_namespace(self, path: str) -> Known | None:
        """How a name in `torch.cuda` or a similar namespace is treated; None for names outside them."""
        if path in self._neighbours:
            return self._neighbours[path]
        root, space, *names = [*path.split("."), ""][:4]
        name = ".".join(filter(None, names))
        if root != "torch" or space not in self.accelerators or not name or name in SUBMODULES.get(space, ()):
            return None
        # A function in a submodule has a row under its own name; an attribute of a class uses the row of the class.
        for candidate in (name, names[0], names[-1]):
            if (space, candidate) in self._surface:
                return self._surface[space, candidate]
        if self.is_point(path):
            return Known(HANDLED, "translated")
        return Known(UNSUPPORTED, f"translation does not cover {path}")

    def backend(self, text: str) -> Known | None:
        """What a backend of torch.distributed becomes here; None for a string that is not a vendor's backend."""
        if not backends.names_vendor(text):
            return None
        given = backends.stand_in(text, self._host)
        note = (
            "is this device's own" if given == text else f"{given} is used, torch's own backend for {self._host.type}"
        )
        return Known(HANDLED, note)


@functools.cache
def _resolved(path: str) -> Any:
    """The object of torch at a path, if it exists. Searches loaded modules only and runs no code of torch."""
    root, *names = path.split(".")
    found: Any = torch if root == "torch" else None
    for name in names:
        found = inspect.getattr_static(found, name, None)
    return found


def _owner_or_self(path: str) -> Any:
    owner, _, name = path.rpartition(".")
    return _resolved(owner if name in ("__init__", "__new__") else path)
