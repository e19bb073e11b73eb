"""Runs programs of reports on a virtual Mac, one forked process each, and prints a line of JSON per program.

    python -m tools.mac_reports.worker plain                                                  torch without our help
    python -m torchdevice run --virtual mps:real --policy portable -m tools.mac_reports.worker     with it

The names are on its input. A fork costs milliseconds where an import of torch costs seconds; what a program sets, and
what it crashes, is its own.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from tools.mac_reports.table import DATA

SECONDS = 120
LONGEST = 400
PLAIN = "plain"


def failure(error: BaseException) -> str:
    """The type and the first line; "" for a program that ends itself."""
    if isinstance(error, SystemExit) and not error.code:
        return ""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:LONGEST]


def run_here(name: str, into: int) -> NoReturn:
    """In the forked process: the program, and then what went wrong, or nothing."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    told = ""
    try:
        runpy.run_path(str(DATA / "programs" / f"{name}.py"), run_name="__main__")
    except BaseException as error:  # whatever it is, it is the outcome
        told = failure(error)
    os.write(into, json.dumps(told).encode())
    os._exit(0)


def outcome(name: str) -> str:
    """Of one program; a crash and a hang are outcomes as well."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        run_here(name, write)
    os.close(write)
    ready, _, _ = select.select([read], [], [], SECONDS)
    if not ready:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if told:
        return str(json.loads(told))
    return f"crashed with signal {os.WTERMSIG(status)}" if ready else f"took more than {SECONDS} s"


def main(options: Sequence[str]) -> None:
    """A line per name."""
    warnings.simplefilter("ignore")
    lines = os.fdopen(os.dup(1), "w")
    if list(options) == [PLAIN]:
        import torchdevice.virtual

        torchdevice.virtual.install("mps", support="real")
    else:
        import torch  # noqa: F401  # `torchdevice run` begins here

    for name in sys.stdin.read().split():
        print(json.dumps({"op": name, "status": "done", "error": outcome(name)}), file=lines, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
