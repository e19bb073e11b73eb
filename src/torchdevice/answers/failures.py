"""Converts errors of the target to the classes and messages that CUDA code expects.

`FAILURES` are the rows. torch raises errors from C, so there are three places to convert one: the wrappers of factories
and moves (`translate.dtypes`); a monitor of raised exceptions for all other calls (Python 3.12 or newer); and in older
versions of Python the names themselves, because `except torch.cuda.OutOfMemoryError` looks up its class while the error
is handled. None of them runs before an error is raised.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch

from torchdevice.answers.audience import Audience
from torchdevice.answers.devices import INVALID_DEVICE, accelerator_error
from torchdevice.answers.real import Real
from torchdevice.answers.rows import CUDA
from torchdevice.translate.callers import user_frame

_getframe = sys._getframe
Undo = Callable[[], object]

# Tool ids of sys.monitoring that are not reserved for a purpose.
MONITORS = (3, 4)


@dataclass(frozen=True)
class Failure:
    """The message of an error on a target ("" for any target), and the class that CUDA raises for it."""

    target: str
    says: re.Pattern[str]
    raised: type[RuntimeError]


OutOfMemory, Accelerator = torch.OutOfMemoryError, torch.AcceleratorError
_SIZE = r"(?P<size>[\d.]+ \w+)"

FAILURES = (
    Failure(
        "cpu",
        re.compile(
            r"DefaultCPUAllocator: (?:can't allocate|not enough) memory: you tried to allocate (?P<size>\d+) bytes"
        ),
        OutOfMemory,
    ),
    Failure("mps", re.compile(rf"MPS backend out of memory .*Tried to allocate {_SIZE}", re.DOTALL), OutOfMemory),
    Failure("mps", re.compile(rf"Invalid buffer size: {_SIZE}"), OutOfMemory),
    Failure("xpu", re.compile(rf"XPU out of memory\. Tried to allocate {_SIZE}"), OutOfMemory),
    Failure("", re.compile(r"invalid device ordinal|device index is out of range"), Accelerator),
)
_CANDIDATES = frozenset({RuntimeError, OutOfMemory, Accelerator})


def is_out_of_memory(error: BaseException, target: str) -> bool:
    """Whether the error of a target says that its memory is full."""
    if type(error) is OutOfMemory:
        return True
    found = (row for row in FAILURES if row.target == target and row.raised is OutOfMemory)
    return type(error) is RuntimeError and any(row.says.search(str(error)) for row in found)


def as_cuda_error(error: BaseException, target: str) -> RuntimeError | None:
    """The error that CUDA would have raised instead; None for errors that are the same on all devices."""
    text = str(error)
    if type(error) not in _CANDIDATES or text.startswith("CUDA "):
        return None
    for row in FAILURES:
        found = row.says.search(text) if row.target in ("", target) else None
        if found is None:
            continue
        said = f"GPU 0 is this machine's {target}, whose error was: {text}"
        if row.raised is OutOfMemory:
            return OutOfMemory(f"CUDA out of memory. Tried to allocate {_readable(found['size'])}. {said}")
        return accelerator_error(f"CUDA error: invalid device ordinal. {said}", INVALID_DEVICE)
    return None


def _readable(size: str) -> str:
    """Bytes in the format of torch.cuda's messages. Text with a unit is returned unchanged."""
    if not size.isdigit():
        return size
    number, unit = (int(size) / (1 << 30), "GiB") if int(size) >= 1 << 30 else (int(size) / (1 << 20), "MiB")
    return f"{number:.2f} {unit}"


class Failures:
    """Recognizes, converts and counts the errors of one target."""

    def __init__(self, audience: Audience, target: Real) -> None:
        self._audience = audience
        self._target = target
        self._rows = {row.name: row for row in CUDA}

    def mapped(self, error: BaseException, frame: FrameType | None = None) -> RuntimeError | None:
        """CUDA's error for this one, counted at the place in user code; None if the error is not converted."""
        if type(error) not in _CANDIDATES or not self._audience.translator.in_force:
            return None
        found = as_cuda_error(error, self._target.type)
        if found is not None:
            name = type(found).__name__
            place = user_frame(frame or _getframe(1), self._audience.translator.roles)
            counter = self._audience.answers(self._rows[name], f"torch.cuda.{name}", place)
            if counter is not None:
                next(counter)
            self._target.ooms += type(found) is OutOfMemory
        return found

    def apply(self) -> Undo:
        """Convert errors that are raised outside our wrappers from now on."""
        return self._monitor() or self._answer_by_name()

    def _monitor(self) -> Undo | None:
        """Monitor every exception that is raised in Python frames. Returns None if this is not possible."""
        monitoring: Any = getattr(sys, "monitoring", None)
        tool = next((n for n in MONITORS if monitoring.get_tool(n) is None), None) if monitoring is not None else None
        if tool is None:
            return None
        raising = monitoring.events.RAISE

        def raised(code: CodeType, offset: int, error: BaseException) -> None:
            if type(error) in _CANDIDATES:
                found = self.mapped(error, _getframe(1))
                if found is not None:
                    raise found.with_traceback(error.__traceback__) from error

        def stop() -> None:
            monitoring.set_events(tool, 0)
            monitoring.register_callback(tool, raising, None)
            monitoring.free_tool_id(tool)

        monitoring.use_tool_id(tool, "torchdevice")
        monitoring.register_callback(tool, raising, raised)
        monitoring.set_events(tool, raising)
        return stop

    def _answer_by_name(self) -> Undo:
        """Make the names of CUDA's error classes return the class of the target's error that is being handled."""
        ways_back = [self._named_in(module) for module in (torch, torch.cuda)]

        def stop() -> None:
            for way_back in ways_back:
                way_back()

        return stop

    def _named_in(self, module: ModuleType) -> Undo:
        space = vars(module)
        classes = {kind.__name__: kind for kind in (OutOfMemory, Accelerator)}
        other = space.get("__getattr__")

        def __getattr__(name: str) -> Any:  # noqa: N807 - Python calls it for names that a module lacks
            if name in classes:
                return self._standing_for(classes[name], _getframe(1))
            if other is not None:
                return other(name)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        for name in classes:
            delattr(module, name)
        module.__getattr__ = __getattr__  # type: ignore[method-assign]

        def stop() -> None:
            for name, kind in classes.items():
                setattr(module, name, kind)
            if other is None:
                del space["__getattr__"]
            else:
                space["__getattr__"] = other

        return stop

    def _standing_for(self, kind: type[RuntimeError], frame: FrameType) -> type[BaseException]:
        """`kind`, or the class of the error that is being handled, if CUDA would have raised it as `kind`."""
        error = sys.exc_info()[1]
        if type(error) is not RuntimeError:
            return kind
        stands_for = vars(error).get("_stands_for")
        if stands_for is None:
            found = self.mapped(error, frame)
            if found is None:
                return kind
            stands_for = vars(error)["_stands_for"] = type(found)
            error.__cause__, error.args = RuntimeError(*error.args), found.args
        return RuntimeError if stands_for is kind else kind
