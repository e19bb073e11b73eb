"""A virtual device on an accelerator, on a machine without one: the accelerator is a virtual one itself.

The library is loaded twice. The first copy is the accelerator, which the CPU computes for; the second is on top of it
and knows it through torch's interfaces only, as it knows a real one.
"""

from __future__ import annotations

import ctypes
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torchdevice.virtual
from torchdevice.virtual import build, installer
from torchdevice.virtual.installer import Installation, Support
from torchdevice.virtual.library import Library

MEMORY = 1 << 34


class _Lacking:
    """A library that is not told of some operators, nor what to do with those that nobody told it of."""

    def __init__(self, library: Library, operators: Collection[str]) -> None:
        self._library = library
        self._operators = operators

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def call(self, name: str, *arguments: object) -> int:
        if name == "fallback" or (name == "register" and arguments[0] in self._operators):
            return 0
        return self._library.call(name, *arguments)


@contextmanager
def accelerator(on: str, lacking: Collection[str] = (), count: int = 1) -> Iterator[Library]:
    """An accelerator that has no kernel for `lacking`. A virtual device that is installed inside is on top of it.

    In a build for CUDA a virtual `cuda` lacks nothing: torch has kernels for that type. Take `xpu` there.
    """
    path = build.build()
    beneath = Library(ctypes.CDLL(str(path)))
    beneath.call("init", on, "cpu", count, "", 0, MEMORY)
    installer._register(_Lacking(beneath, lacking), on, "all", "cpu")  # type: ignore[arg-type]
    second = Path(tempfile.mkdtemp()) / "second.so"
    shutil.copy(path, second)
    with (
        mock.patch.object(build, "load", return_value=ctypes.CDLL(str(second))),
        mock.patch.object(installer, "_accelerator", return_value=on),
        mock.patch.object(installer, "memory_of", return_value=MEMORY),
    ):
        yield beneath


def install(
    device: str, on: str = "cuda", lacking: Collection[str] = (), support: Support = "all", count: int = 1
) -> tuple[Installation, Library]:
    """A virtual `device` on an accelerator; and the accelerator."""
    with accelerator(on, lacking, count) as beneath:
        return torchdevice.virtual.install(device, count, support, on), beneath
