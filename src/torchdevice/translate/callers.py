"""Who is calling, told by the file of the calling frame, and which line of user code is behind a call.

What follows from it is decided in `policy.resolve`.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import functools
import os
import pickle
import re
from multiprocessing import connection, queues, reduction
from types import FrameType
from typing import NamedTuple

import typing_extensions

from torchdevice._torch.core import TORCH_FOLDER
from torchdevice.policy.resolve import Caller

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")  # in the path of a file that a user did not write

# Inside torch the longest matching prefix counts. "AGENT": what is made without a device is made for the user.
# "USER": besides, an explicit device is the one that the user passed in.
_INSIDE_TORCH = {
    "": Caller.TORCH,
    "nn": Caller.AGENT,
    "nn/modules": Caller.USER,
    "nn/modules/module.py": Caller.TORCH,
    "nn/parallel": Caller.TORCH,
    "distributions": Caller.AGENT,
    "functional.py": Caller.AGENT,
    "nested": Caller.USER,
    "signal": Caller.USER,
    "testing": Caller.USER,
    "hub.py": Caller.USER,
}

# These pass on what user code wrote: they run graphs that were traced from it (factories in a graph were decided
# while tracing; methods that move a tensor are still as they were written), or read a checkpoint's devices.
_RELAYS = ("fx/interpreter.py", "_dynamo/utils.py", "_dynamo/variables/", "_weights_only_unpickler.py")
_GENERATED_BY_FX = "<eval_with_key>"

# The standard library's copying and pickling rebuild what was there: a CPU device stays one.
_REBUILDERS = frozenset(str(module.__file__) for module in (copy, copyreg, pickle, connection, queues, reduction))


# Decorators run between a user's line and what it calls: for the report, the line is further up.
_DECORATORS = frozenset(str(module.__file__) for module in (contextlib, functools, typing_extensions))


class Role(NamedTuple):
    """What a file's code is to the policy, and whether a report should look further up for the user's line."""

    caller: Caller
    inner: bool
    slot: int  # the caller's number: enum members hash slowly
    relays: bool = False


_SLOTS = {caller: slot for slot, caller in enumerate(Caller)}


def _role(caller: Caller, inner: bool, relays: bool = False) -> Role:
    return Role(caller, inner, _SLOTS[caller], relays)


# Code under torch's compiler is not running in a frame of its own: it counts as user code, reported further up.
TRACED = _role(Caller.USER, inner=True)
NAMING = _role(Caller.NAMING, inner=True)


def role_of(filename: str) -> Role:
    """Classify a file by its path."""
    if filename.startswith(TORCH_FOLDER):
        inside = filename[len(TORCH_FOLDER) :].replace(os.sep, "/")
        best = max((prefix for prefix in _INSIDE_TORCH if _covers(prefix, inside)), key=len)
        return _role(_INSIDE_TORCH[best], inner=True, relays=inside.startswith(_RELAYS))
    if filename.startswith(_GENERATED_BY_FX):
        return _role(Caller.TORCH, inner=True, relays=True)
    if filename.startswith(OURS) or filename in _REBUILDERS:
        return _role(Caller.TORCH, inner=True)
    return _role(Caller.USER, inner=filename in _DECORATORS)


def _covers(prefix: str, path: str) -> bool:
    return not prefix or path == prefix or path.startswith(prefix + "/")


class Roles(dict[str, Role]):
    """Roles by file name, filled as files turn up: one dict look-up a call."""

    def __missing__(self, filename: str) -> Role:
        role = self[filename] = role_of(filename)
        return role


def user_frame(frame: FrameType, roles: Roles) -> FrameType:
    """The nearest frame of user code, starting at `frame`; `frame` itself where there is none (threads of torch)."""
    candidate: FrameType | None = frame
    while candidate is not None:
        if not roles[candidate.f_code.co_filename].inner:
            return candidate
        candidate = candidate.f_back
    return frame
