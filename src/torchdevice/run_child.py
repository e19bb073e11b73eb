"""Runs inside the processes of `torchdevice run`: reports at exit and on SIGUSR1, and hides our stack frames.

`run` replaces itself with Python and passes two variables; `import torch` calls `autoload`, which calls this module.
The first process of a run that imports torch reports; the others pass their figures to it. `reporting` formats reports,
and `cli.run` is the command line.
"""

from __future__ import annotations

import functools
import logging
import os
import platform
import shlex
import signal
import sys
import threading
import time
from multiprocessing import util
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from torchdevice import __version__, tracebacks, virtual
from torchdevice.answers import packages
from torchdevice.config import POLICY_REASON, PROFILE, switched_on
from torchdevice.environment import environment
from torchdevice.errors import ConfigError
from torchdevice.notices import warn
from torchdevice.printable import printable_lines
from torchdevice.reporting import spool
from torchdevice.reporting.collect import Context, Counts, Report
from torchdevice.reporting.destinations import REPORT, SUMMARY, TEXT, TRACE, Destination, parse, write
from torchdevice.reporting.secrets import without_secrets
from torchdevice.reporting.spool import RUN
from torchdevice.session import session
from torchdevice.translate.hints import checks_the_type, moved_from_the_cpu
from torchdevice.translate.translator import translator

if TYPE_CHECKING:
    from torchdevice.profiling import Profiler

# multiprocessing terminates and joins its children before it runs finalizers of negative priority.
_AFTER_CHILDREN = -1_000_000
_SECONDS_TO_REPORT = 10.0


def from_environment() -> Supervision | None:
    """The supervision that the environment asks for, if any. A bad value leads to a warning."""
    started_by_run = RUN in environment()
    profiled = switched_on(PROFILE)
    if not started_by_run and not environment().get(REPORT) and not profiled:
        return None
    try:
        destinations = parse(environment().get(REPORT, "" if started_by_run else SUMMARY))
    except ConfigError as error:
        warn(f"torchdevice: {REPORT} is ignored: {error}", level=logging.ERROR, stacklevel=2)
        return None
    # Absolute, also for child processes, because programs change their current folder.
    folder = Path(os.path.abspath(environment().get(RUN) or spool.new_folder()))
    os.environ[RUN] = str(folder)
    return Supervision(folder, destinations, started_by_run, profiled)


def _profiler(traced: bool) -> Profiler:
    from torchdevice.profiling import Profiler  # loads the fallbacks and the C++ library, which few runs need

    return Profiler(traced)


class Supervision:
    """The role of this process in a run. `reports`: whether it writes the report."""

    def __init__(
        self, folder: Path, destinations: tuple[Destination, ...], started_by_run: bool, profiled: bool
    ) -> None:
        self._folder = folder
        self._destinations = destinations
        traced = any(destination.form == TRACE for destination in destinations)
        self._profiler = _profiler(traced) if profiled or traced else None
        self._pid = os.getpid()
        self._started = time.monotonic()
        self._inherited = Counts()
        self._forked = self._ended = False
        self._context = Context()
        self.reports = spool.claim(folder)
        self.must_work = started_by_run and self.reports and spool.began_here(folder)

    def attach(self) -> None:
        """Install the hooks, after the session was started (or switched off by the user)."""
        status, there = session.status(), virtual.installed()
        self._context = Context(
            target=status.target or "none: switched off",
            computed_by=there.on if there is not None and there.device == status.target else "",
            policy=status.policy or "none",
            policy_reason=environment().get(POLICY_REASON, "") if status.policy else "",
            command=shlex.join([os.path.basename(sys.executable), *without_secrets(sys.orig_argv[1:])]),
            versions={
                "torchdevice": __version__,
                "torch": str(sys.modules["torch"].__version__),
                "python": platform.python_version(),
            },
        )
        tracebacks.hide()
        device = f"a virtual {status.target}" if there is not None else status.target
        if device not in (None, "cuda"):
            sys.excepthook = tracebacks.followed_by(sys.excepthook, lambda error: packages.hint(error, str(device)))
        for hint in (moved_from_the_cpu, checks_the_type):
            sys.excepthook = tracebacks.followed_by(sys.excepthook, functools.partial(hint, translator=translator))
        self._end_with_the_process()
        # multiprocessing clears the finalizers in its children; a child made by `os.fork` inherits its parent's.
        util.register_after_fork(self, Supervision._end_with_the_process)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before_fork, after_in_child=self._in_forked_child)
        self._handle_signals()
        if self._profiler is not None:
            self._profiler.start(status.target or "cpu")

    def give_up(self, error: Exception) -> NoReturn:
        """Print an error and exit before the program starts, because a setting of the run cannot work."""
        spool.remove(self._folder)
        sys.stderr.write(f"torchdevice: {printable_lines(str(error))}\n")
        raise SystemExit(2)

    def _end_with_the_process(self) -> None:
        util.Finalize(None, self._end, exitpriority=_AFTER_CHILDREN)

    def _before_fork(self) -> None:
        self._inherited = session.counts()

    def _in_forked_child(self) -> None:
        """Leave the parent's counts to the parent. The profiler's thread does not exist in a forked child."""
        self._pid, self._started = os.getpid(), time.monotonic()
        self._forked, self.reports, self._profiler = True, False, None
        self._end_with_the_process()

    def _counts(self) -> Counts:
        """The figures of this process since it started."""
        seconds = time.monotonic() - self._started
        mine = session.counts().since(self._inherited) if self._forked else session.counts()
        profile = self._profiler.profile(mine.fallbacks) if self._profiler is not None else None
        return Counts(mine.records, mine.fallbacks, seconds, profile)

    def _end(self) -> None:
        if self._ended or os.getpid() != self._pid:
            return
        self._ended = True
        if self._profiler is not None:
            self._profiler.stop()
        if self.reports:
            self._write(self._destinations)
            spool.remove(self._folder)
            return
        counts = self._counts()
        if not counts:
            return
        try:
            spool.write(self._folder, counts)
        except FileNotFoundError:  # the process that reports has already ended
            if not self._forked:
                self._write((Destination(SUMMARY),))
        except OSError as error:
            if sys.stderr is not None:
                sys.stderr.write(f"torchdevice: the figures of process {self._pid} are lost: {error.strerror}\n")

    def _write(self, destinations: tuple[Destination, ...]) -> None:
        if sys.stderr is None or not (destinations or self._profiler):
            return
        counts = self._counts()
        wall = counts.seconds
        counts += spool.read(self._folder)
        if counts.unreadable:
            sys.stderr.write(f"torchdevice: the figures of {counts.unreadable} child process(es) could not be read\n")
        figures = {
            "placed": session.status().placed or "",
            "seconds": wall,
            "processes": counts.processes,
            "process_seconds": counts.seconds,
        }
        write(Report.of_counts(counts), Context(**{**vars(self._context), **figures}), destinations)

    def _handle_signals(self) -> None:
        """SIGUSR1 writes the report so far. SIGTERM writes a requested report, then ends the program as usual.

        A signal that the program or SLURM uses is left alone.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        if (
            self.reports
            and hasattr(signal, "SIGUSR1")
            and signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
            and "SLURM_JOB_ID" not in os.environ
        ):
            signal.signal(signal.SIGUSR1, self._on_signal)
        asked_for = self._profiler is not None or any(each.form != SUMMARY for each in self._destinations)
        if os.name == "posix" and asked_for and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_termination)

    def _on_signal(self, number: int, frame: object) -> None:
        # In a thread, because the signal may arrive while this thread holds the lock of the counts.
        threading.Thread(target=self._write, args=((Destination(TEXT),),), name="torchdevice report").start()

    def _on_termination(self, number: int, frame: object) -> None:
        if signal.getsignal(number) != self._on_termination:  # called by the program's own handler, which decides
            return
        reporting = threading.Thread(target=self._end, name="torchdevice report", daemon=True)
        reporting.start()
        reporting.join(_SECONDS_TO_REPORT)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
