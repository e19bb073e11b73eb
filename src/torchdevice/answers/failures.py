"""Failures of the target in the classes and words that CUDA code looks for, and who meets an error on its way.

`FAILURES` are the rows. torch raises from C, so there are three places where an error can be met: the wrappers of
factories and moves (`translate.dtypes`), a monitor of raised exceptions (every other call; Python 3.12), and before
that Python the names themselves: `except torch.cuda.OutOfMemoryError` asks for its class while the error is handled.
None of them runs before something is raised.
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
from torchdevice.answers.devices import INVALID_DEVICE
from torchdevice.answers.real import Real
from torchdevice.answers.rows import CUDA
from torchdevice.translate.callers import user_frame

_getframe = sys._getframe
Undo = Callable[[], object]

# Numbers that sys.monitoring leaves to tools of no fixed purpose.
MONITORS = (3, 4)


@dataclass(frozen=True)
class Failure:
    """What a target ("" for any) says of a failure, and the class that CUDA raises for it."""

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


def as_cuda_error(error: BaseException, target: str) -> RuntimeError | None:
    """The error that CUDA would have raised in its place; None for errors that mean the same everywhere."""
    text = str(error)
    if type(error) not in _CANDIDATES or text.startswith("CUDA "):
        return None
    for row in FAILURES:
        found = row.says.search(text) if row.target in ("", target) else None
        if found is None:
            continue
        said = f"GPU 0 stands for this machine's {target}, which said: {text}"
        if row.raised is OutOfMemory:
            return OutOfMemory(f"CUDA out of memory. Tried to allocate {_readable(found['size'])}. {said}")
        made = Accelerator(f"CUDA error: invalid device ordinal. {said}")
        made.error_code = INVALID_DEVICE
        return made
    return None


def _readable(size: str) -> str:
    """Bytes as torch.cuda's messages write them; a text that has a unit as it is."""
    if not size.isdigit():
        return size
    number, unit = (int(size) / (1 << 30), "GiB") if int(size) >= 1 << 30 else (int(size) / (1 << 20), "MiB")
    return f"{number:.2f} {unit}"


class Failures:
    """The failures of one target, recognised and counted."""

    def __init__(self, audience: Audience, target: Real) -> None:
        self._audience = audience
        self._target = target
        self._rows = {row.name: row for row in CUDA}

    def mapped(self, error: BaseException, frame: FrameType | None = None) -> RuntimeError | None:
        """CUDA's error for this one, counted at the place in user code; None where the error stays as it is."""
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
        """Meet errors that are raised outside of our wrappers from now on."""
        return self._monitor() or self._answer_by_name()

    def _monitor(self) -> Undo | None:
        """See every exception that is raised in Python frames; None where that cannot be had."""
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
        """Let the names of CUDA's classes stand for the class of the target's failure that is being handled."""
        ways_back = [self._named_in(module) for module in (torch, torch.cuda)]

        def stop() -> None:
            for way_back in ways_back:
                way_back()

        return stop

    def _named_in(self, module: ModuleType) -> Undo:
        space = vars(module)
        classes = {kind.__name__: kind for kind in (OutOfMemory, Accelerator)}
        other = space.get("__getattr__")

        def __getattr__(name: str) -> Any:  # noqa: N807 - what Python asks for names that a module lacks
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
