"""Child processes whose torch is imported already: forked from one process per test worker that has done nothing else.

A forked child begins where `import torch` has ended and ends as every interpreter does: by its own last line, with its
threads, `atexit` and exit status. What comes before that is not its own: the interpreter's flags, and what `import
torch` reads of the environment and starts by entry points. So each environment that a start could tell from others has
a process to fork from, one in which `import torch` would act is refused, and tests about a start do not come here.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
# Ours are read when they are needed, but for those by which `import torch` acts; pytest names the running test.
READ_LATER = ("TORCHDEVICE_", "PYTEST_")
READ_BY_IMPORT = ("TORCHDEVICE", "TORCHDEVICE_VIRTUAL")
STANDARD = ("stdin", "stdout", "stderr")


class Parent:
    """The process that imports torch and forks; it ends when this one does."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.children import serve; serve()()"],
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what is read ahead, `select` would not see
        )
        atexit.register(self._end)

    def run(
        self, module: str, *arguments: str, environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """`python -m module arguments` in a forked child."""
        with tempfile.TemporaryDirectory() as folder:
            files = {name: os.path.join(folder, name) for name in STANDARD}
            for path in files.values():
                Path(path).touch()
            request = {"module": module, "arguments": arguments, "environment": dict(environment), "files": files}
            status = self._status_of(json.dumps(request), timeout)
            texts = [Path(files[name]).read_text(encoding="utf-8") for name in ("stdout", "stderr")]
        return subprocess.CompletedProcess([module, *arguments], status, *texts)

    def _status_of(self, request: str, timeout: float) -> int:
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None
        assert answers is not None
        to.write(request.encode() + b"\n")
        to.flush()
        child = _number(answers)
        if not select.select([answers], [], [], timeout)[0]:
            os.kill(child, signal.SIGKILL)
            _number(answers)
            raise subprocess.TimeoutExpired(request, timeout)
        return _number(answers)

    def _end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()


@functools.cache
def parent(environment: tuple[tuple[str, str], ...]) -> Parent:
    """The one whose start saw this environment."""
    return Parent(dict(environment))


def run_module(
    module: str, *arguments: str, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """`python -m module arguments` from the root of this checkout, after an `import torch` in the same environment."""
    assert not any(map(environment.get, READ_BY_IMPORT)), "the child would be one in which `import torch` has acted"
    if sys.platform != "linux":  # what Apple's frameworks hold does not outlive a fork, and Windows has none
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=dict(environment), capture_output=True, text=True, timeout=timeout, check=False
        )
    start = tuple(sorted(_seen_by_a_start(environment).items()))
    return parent(start).run(module, *arguments, environment=environment, timeout=timeout)


def _seen_by_a_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(READ_LATER)}


def _number(answers: IO[bytes]) -> int:
    line = answers.readline()
    assert line, "the process that forks has ended; its last words are in the error output of the tests"
    return int(line)


def serve() -> Callable[[], None]:
    """Fork for each request and answer with the child's id, then its status. Returns in the child: what it shall do."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    import pytest  # noqa: F401 - the modules of tests import it
    import torch  # noqa: F401

    gc.collect()
    gc.freeze()  # the collections at a child's end would copy every page that it shares with us
    for line in requests:
        assert len(os.listdir("/proc/self/task")) == 1, "a thread of this process would be missing in the child"
        child = os.fork()
        if not child:
            requests.close()
            answers.close()
            return functools.partial(_become, **json.loads(line))
        answers.write(b"%d\n" % child)
        answers.write(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return lambda: None


def _become(module: str, arguments: list[str], environment: dict[str, str], files: dict[str, str]) -> None:
    for number, name in enumerate(STANDARD):
        opened = os.open(files[name], os.O_RDWR | os.O_APPEND)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = str(ROOT)
    sys.argv[1:] = arguments
    runpy._run_module_as_main(module)  # what `python -m` calls
