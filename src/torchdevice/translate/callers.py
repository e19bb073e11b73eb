"""Classifies callers by the file of the calling frame, and finds the line of user code that caused a call.

`policy.resolve` uses the class of a caller.
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
from torchdevice.ledger import Site
from torchdevice.policy.resolve import Caller

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]")  # in the path of a file of an installed package

# Callers by path inside torch. The longest matching prefix counts. AGENT: a tensor without a device is made for the
# user. USER: in addition, an explicit device is the one that the user passed.
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

# These files forward requests of user code. They run graphs that were traced from it, or read the devices of a
# checkpoint. Factories in a graph were decided while tracing. Methods that move a tensor still have their original
# arguments.
_RELAYS = ("fx/interpreter.py", "_dynamo/utils.py", "_dynamo/variables/", "_weights_only_unpickler.py")
_GENERATED_BY_FX = "<eval_with_key>"

# Copying and pickling in the standard library rebuild existing objects, so a CPU device stays the CPU.
_REBUILDERS = frozenset(str(module.__file__) for module in (copy, copyreg, pickle, connection, queues, reduction))


# Frames of decorators lie between a line of user code and the function that it calls. The report skips them.
_DECORATORS = frozenset(str(module.__file__) for module in (contextlib, functools, typing_extensions))


class Role(NamedTuple):
    """The caller class of a file, and whether a report must look further up the stack for the line of user code."""

    caller: Caller
    inner: bool
    slot: int  # the index of the caller class, because hashing an enum member is slow
    relays: bool = False


_SLOTS = {caller: slot for slot, caller in enumerate(Caller)}


def _role(caller: Caller, inner: bool, relays: bool = False) -> Role:
    return Role(caller, inner, _SLOTS[caller], relays)


# Code under torch's compiler has no frame. It counts as user code; the report looks further up the stack.
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
    """Roles by file name, filled on demand, so that each call costs one dict lookup."""

    def __missing__(self, filename: str) -> Role:
        role = self[filename] = role_of(filename)
        return role


def user_frame(frame: FrameType, roles: Roles) -> FrameType:
    """The nearest frame of user code, starting at `frame`; `frame` itself if there is none (threads of torch)."""
    candidate: FrameType | None = frame
    while candidate is not None:
        if not roles[candidate.f_code.co_filename].inner:
            return candidate
        candidate = candidate.f_back
    return frame


# Gradients are computed in autograd's threads, which have no frame of user code.
IN_BACKWARD = Site("<backward pass>", 0)


def site_of(frame: FrameType, roles: Roles) -> Site:
    """The line of user code in a report, for a frame that `user_frame` found."""
    code = frame.f_code
    return IN_BACKWARD if roles[code.co_filename].inner else Site(code.co_filename, frame.f_lineno)
