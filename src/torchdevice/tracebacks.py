"""Hides our stack frames in tracebacks and in the locations of warnings.

Our wrappers are on the stack between the user's line and torch. Python cannot hide a frame, so frames are removed where
they are shown: in the hooks for exceptions, in `traceback` (which `logging` and `unittest` use), and where a warning
gets its location. Tools that read frames themselves (a debugger, faulthandler) still see them. `followed_by` prints our
hint after an exception that ends a program. Does not import torch.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from torchdevice.printable import printable_lines

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep

Hook = Callable[..., Any]


def followed_by(show: Hook, say: Callable[[BaseException], str]) -> Hook:
    """An exception hook that calls `show` and then prints the hint that `say` returns."""

    def excepthook(kind: type[BaseException], value: BaseException, tb: TracebackType | None) -> None:
        show(kind, value, tb)
        said = say(value)
        if said and sys.stderr is not None:
            sys.stderr.write(f"torchdevice: {printable_lines(said)}\n")

    return excepthook


def hide() -> None:
    """Hide our frames from now on in this process."""
    sys.excepthook = _showing_user_frames(sys.excepthook)
    threading.excepthook = _in_threads(threading.excepthook)
    sys.unraisablehook = _unraisable(sys.unraisablehook)
    summarize = traceback.TracebackException.__init__

    @functools.wraps(summarize)
    def of_user_frames(self: Any, kind: Any, value: Any, tb: Any, *args: Any, **options: Any) -> None:
        summarize(self, kind, value, without_ours(tb), *args, **options)

    traceback.TracebackException.__init__ = of_user_frames  # type: ignore[assignment, method-assign]
    # A private function, which C code looks up for each warning. The public `showwarning` loses the output of
    # `-X tracemalloc`.
    show = getattr(warnings, "_showwarnmsg", None)
    if show is not None:
        warnings._showwarnmsg = _with_users_place(show)  # type: ignore[attr-defined]


def _showing_user_frames(show: Hook) -> Hook:
    def excepthook(kind: type[BaseException], value: BaseException, tb: TracebackType | None) -> None:
        strip(value)
        show(kind, value, value.__traceback__ if tb is not None else None)

    return excepthook


def _in_threads(show: Hook) -> Hook:
    def excepthook(args: Any) -> None:
        if args.exc_value is not None:
            strip(args.exc_value)
            args = threading.ExceptHookArgs((args.exc_type, args.exc_value, args.exc_value.__traceback__, args.thread))
        show(args)

    return excepthook


def _unraisable(show: Hook) -> Hook:
    def unraisablehook(unraisable: Any) -> None:
        if unraisable.exc_value is not None:
            strip(unraisable.exc_value)
        show(unraisable)

    return unraisablehook


def strip(error: BaseException) -> None:
    """Remove our frames from the traceback of an exception and of all exceptions chained to it."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = without_ours(each.__traceback__)
        pending += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]


def without_ours(tb: TracebackType | None) -> TracebackType | None:
    """The traceback without our frames; unchanged if it has no others."""
    kept = []
    following = tb
    while following is not None:
        if not is_ours(following.tb_frame):
            kept.append(following)
        following = following.tb_next
    if not kept:
        return tb
    for frame, after in zip(kept, [*kept[1:], None], strict=True):
        frame.tb_next = after
    return kept[0]


def is_ours(frame: FrameType) -> bool:
    """Whether a frame runs code of this package."""
    return frame.f_code.co_filename.startswith(_OURS)


def _with_users_place(show: Hook) -> Hook:
    """Move a warning of torch from the line of our wrapper to the line of user code that called it."""

    def showwarnmsg(message: Any) -> None:
        if message.filename.startswith(_OURS):
            frame = _caller_of_ours(sys._getframe(1), message.filename)
            if frame is not None and not _move(message, frame):
                return
        show(message)

    return showwarnmsg


def _caller_of_ours(frame: FrameType | None, filename: str) -> FrameType | None:
    while frame is not None and frame.f_code.co_filename != filename:
        frame = frame.f_back
    while frame is not None and is_ours(frame):
        frame = frame.f_back
    return frame


def _move(message: Any, to: FrameType) -> bool:
    """Set the location of a warning. Returns False if it was already shown there and is due once per location only."""
    noted = _registry_of(message.filename)
    text, kind = str(message.message), message.category
    once_a_module = noted.pop((text, kind, 0), None)
    once_a_line = noted.pop((text, kind, message.lineno), None)  # so that the next location gets here, too
    message.filename, message.lineno, message.line = to.f_code.co_filename, to.f_lineno, None
    if not once_a_module and not once_a_line:
        return True
    theirs = to.f_globals.setdefault("__warningregistry__", {})
    key = (text, kind, 0 if once_a_module else to.f_lineno)
    seen = key in theirs
    theirs[key] = True
    return not seen


def _registry_of(filename: str) -> dict[Any, Any]:
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == filename:
            registry: dict[Any, Any] = vars(module).setdefault("__warningregistry__", {})
            return registry
    return {}
