"""The process of a check: its device, and whether TorchDevice is active or a virtual device installed in it."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

import torchdevice
import torchdevice.virtual
from torchdevice.policy.hosts import this_host
from torchdevice.verify.findings import AS, TRANSLATED, Skipped
from torchdevice.virtual.installer import DEVICES

F = TypeVar("F", bound=Callable[..., Any])
_HALF = {"mps": torch.float16}


@dataclass(frozen=True)
class Setting:
    """`kind`: the device type that is checked. `virtual`: the virtual device that was requested, if any."""

    kind: str
    way: str = "plain"
    virtual: str = ""

    @property
    def named(self) -> str:
        """The device that a program names: the real one, or one that this machine lacks."""
        return self.kind if self.way not in (TRANSLATED, AS) else other_than(self.kind)

    @property
    def half(self) -> torch.dtype:
        """The dtype of 16 bits that programs use on the device."""
        return _HALF.get(self.kind, torch.bfloat16)


def other_than(kind: str) -> str:
    """A device type that a machine with this accelerator lacks."""
    return "mps" if kind == "cuda" else "cuda"


def begin(way: str, virtual: str) -> Setting:
    """Set up this process. Called once, before the first operator."""
    torch.backends.cudnn.allow_tf32 = False  # else convolutions of float32 are rounded to 10 bits on CUDA
    if virtual:
        torchdevice.virtual.from_environment(virtual)
    kind = this_host().type
    if way == AS:
        if virtual:
            raise Skipped("a virtual device cannot be put on another virtual device")
        if kind not in DEVICES:
            raise Skipped(f"a virtual device cannot be put on {kind}")
        if torchdevice.virtual.info()["compiler"] is None:
            raise Skipped("there is no C++ compiler to build virtual devices")
        torchdevice.virtual.install(other_than(kind), on=kind)
    elif way == TRANSLATED:
        torchdevice.activate(policy="portable")
    return Setting(kind, way, virtual)


def is_usable(kind: str) -> bool:
    """Whether the device still computes. After some errors of a kernel every later call of the process fails."""
    try:
        return bool(torch.ones(2, device=kind).sum().item() == 2)
    except RuntimeError:
        return False


_AS_USER = "<torchdevice verify>"


def as_user_code(function: F) -> F:
    """The same function as if it were in a file of the user: TorchDevice decides by the file of the caller."""
    code = _renamed(function.__code__)
    given = (function.__name__, function.__defaults__, function.__closure__)
    return types.FunctionType(code, function.__globals__, *given)  # type: ignore[return-value]


def _renamed(code: types.CodeType) -> types.CodeType:
    constants = tuple(_renamed(each) if isinstance(each, types.CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=_AS_USER, co_consts=constants)
