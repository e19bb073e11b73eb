"""A forked child ends as one that was started does."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tests import children
from tests.virtual.harness import TIMEOUT, environment, run_python


class Ending:
    """As `@on("")` hands it to its child."""

    def __init__(self, body: Callable[[], None]) -> None:
        self.body = body


def leave_work() -> None:
    atexit.register(print, "at exit")
    threading.Thread(target=lambda: (time.sleep(0.1), print("thread ended"))).start()
    print(sys.argv[1:], sys.stdin.read(), os.environ["TORCHDEVICE_FLOAT64"], os.getcwd(), sys.path[0])


def leave_work_and_fail() -> None:
    leave_work()
    raise ValueError("no")


last_line = Ending(leave_work)
error = Ending(leave_work_and_fail)
exit_status = Ending(lambda: sys.exit(7))
exit_message = Ending(lambda: sys.exit("good bye"))
sudden = Ending(lambda: os._exit(3))
crash = Ending(lambda: os.kill(os.getpid(), signal.SIGSEGV))
thread_fails = Ending(lambda: threading.Thread(target=leave_work_and_fail).start())


@pytest.mark.parametrize("ending", [name for name, value in globals().items() if isinstance(value, Ending)])
def test_a_forked_child_ends_as_a_started_one_does(ending: str) -> None:
    arguments = ("tests.virtual.harness", "", f"{__name__}:{ending}", "{}")
    full = environment(TORCHDEVICE_FLOAT64="cpu")
    forked = children.run_module(*arguments, environment=full, timeout=TIMEOUT)
    started = run_python("-m", *arguments, env={"TORCHDEVICE_FLOAT64": "cpu"})
    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


def test_an_environment_in_which_import_torch_acts_is_refused() -> None:
    for name in children.READ_BY_IMPORT:
        with pytest.raises(AssertionError, match="has acted"):
            children.run_module("tests.virtual.harness", environment=environment(**{name: "1"}), timeout=TIMEOUT)
