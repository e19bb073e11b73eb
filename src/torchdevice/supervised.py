"""The inside of `torchdevice run`: a process that reports at its end, on SIGUSR1, and shows no frames of ours.

`run` replaces itself by Python and leaves two variables; `autoload` brings us here from `import torch`. The first
process of a run that imports torch reports; the others leave their counts with it. What a report looks like is
`reporting`; the command line is `cli.run`.
"""

from __future__ import annotations

import atexit
import os
import platform
import shlex
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from torchdevice import __version__
from torchdevice.errors import ConfigError, TorchDeviceWarning
from torchdevice.reporting import spool
from torchdevice.reporting.collect import Context, Report, merged
from torchdevice.reporting.destinations import REPORT, SUMMARY, TEXT, Destination, parse, write
from torchdevice.reporting.spool import RUN
from torchdevice.session import session

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep

Hook = Callable[..., Any]


def from_environment() -> Supervision | None:
    """What the environment asks for, if anything. A bad value costs a warning."""
    started_by_run = RUN in os.environ
    if not started_by_run and not os.environ.get(REPORT):
        return None
    try:
        destinations = parse(os.environ.get(REPORT, ""))
    except ConfigError as error:
        warnings.warn(f"torchdevice: {REPORT} is ignored: {error}", TorchDeviceWarning, stacklevel=2)
        return None
    folder = Path(os.environ.setdefault(RUN, spool.new_folder()))
    return Supervision(folder, destinations, started_by_run)


class Supervision:
    """This process's part in a run. `reports`: it is the one that does."""

    def __init__(self, folder: Path, destinations: tuple[Destination, ...], started_by_run: bool) -> None:
        self._folder = folder
        self._destinations = destinations
        self._pid = os.getpid()
        self._started = time.monotonic()
        self._context = Context()
        self.reports = spool.claim(folder)
        self.must_work = started_by_run and self.reports

    def attach(self) -> None:
        """Take up the duties, once the session has been started (or was switched off by the user)."""
        status = session.status()
        self._context = Context(
            target=status.target or "none: switched off",
            policy=status.policy or "none",
            command=shlex.join([os.path.basename(sys.executable), *sys.orig_argv[1:]]),
            versions={
                "torchdevice": __version__,
                "torch": str(sys.modules["torch"].__version__),
                "python": platform.python_version(),
            },
        )
        atexit.register(self._at_exit)
        sys.excepthook = _showing_user_frames(sys.excepthook)
        threading.excepthook = _in_threads(threading.excepthook)
        if self.reports:
            self._report_on_signal()

    def give_up(self, error: Exception) -> NoReturn:
        """The run was asked for something impossible: say so and end, before the program does half of its work."""
        spool.remove(self._folder)
        sys.stderr.write(f"torchdevice: {error}\n")
        raise SystemExit(2)

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:  # a forked child inherits us, but not our duties
            return
        if self.reports:
            self._write(self._destinations)
            spool.remove(self._folder)
            return
        totals = session.totals()
        if not totals:
            return
        try:
            spool.write(self._folder, totals)
        except FileNotFoundError:  # the process that reports has ended before us
            self._write((Destination(SUMMARY),))

    def _write(self, destinations: tuple[Destination, ...]) -> None:
        if sys.stderr is None or not destinations:
            return
        elsewhere, processes = spool.read(self._folder)
        report = Report.of(merged(session.totals(), elsewhere))
        seconds = time.monotonic() - self._started
        write(report, Context(**{**vars(self._context), "seconds": seconds, "processes": 1 + processes}), destinations)

    def _report_on_signal(self) -> None:
        """SIGUSR1 writes the report so far. Whoever has a use for the signal keeps it: SLURM, or an own handler."""
        if (
            hasattr(signal, "SIGUSR1")
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
            and "SLURM_JOB_ID" not in os.environ
        ):
            signal.signal(signal.SIGUSR1, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        # In a thread: the signal may have come while this one holds the lock of the counts.
        threading.Thread(target=self._write, args=((Destination(TEXT),),), name="torchdevice report").start()


def _showing_user_frames(show: Hook) -> Hook:
    def excepthook(kind: type[BaseException], value: BaseException, traceback: TracebackType | None) -> None:
        strip(value)
        show(kind, value, value.__traceback__ if traceback is not None else None)

    return excepthook


def _in_threads(show: Hook) -> Hook:
    def excepthook(args: Any) -> None:
        if args.exc_value is not None:
            strip(args.exc_value)
            args = threading.ExceptHookArgs((args.exc_type, args.exc_value, args.exc_value.__traceback__, args.thread))
        show(args)

    return excepthook


def strip(error: BaseException) -> None:
    """Take our frames out of the traceback of an exception and of all that it is chained to."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = _without_ours(each.__traceback__)
        pending += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    kept = []
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(_OURS):
            kept.append(traceback)
        traceback = traceback.tb_next
    for frame, following in zip(kept, [*kept[1:], None], strict=True):
        frame.tb_next = following
    return kept[0] if kept else None
