"""Reads files in a child process with limits on memory and time, because parsing a malicious file can exhaust both.

A child reads files in order and writes one line of JSON per file. If it ends early, the file that it was reading is
the cause, and another child continues with the next file.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

from torchdevice.cli.scanning.visitor import Finding

MEMORY = 1 << 30  # bytes that a child may use beyond those it has at its start
SECONDS = 20  # of CPU time

Read = Callable[[Path], list[Finding]]


def read_each(paths: Sequence[Path], read: Read) -> Iterator[list[Finding] | str]:
    """For each file the findings, or the reason why it could not be read."""
    done = 0
    while done < len(paths):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _work(paths[done:], read, writing)
        os.close(writing)
        status, before = None, done
        try:
            with open(reading, "rb") as answers:
                for line in answers:
                    if line.endswith(b"\n"):  # else the child was killed while writing
                        yield _answer(line)
                        done += 1
            status = os.waitpid(child, 0)[1]
        finally:
            if status is None:  # the consumer stopped early
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        if status or done == before:
            yield _ended(status)
            done += 1


def _answer(line: bytes) -> list[Finding] | str:
    data = json.loads(line)
    return data if isinstance(data, str) else [Finding(*values) for values in data]


def _ended(status: int) -> str:
    number = -os.waitstatus_to_exitcode(status)
    if number == signal.SIGXCPU:
        return f"takes more than {SECONDS} seconds"
    return f"reading it ended by {signal.Signals(number).name}" if number > 0 else "reading it ended early"


def _work(paths: Sequence[Path], read: Read, writing: int) -> None:
    """The work of a child. It exits after a file that ran out of memory, because memory may have leaked."""
    status = 1
    try:
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        _limit(resource.RLIMIT_AS, psutil.Process().memory_info().vms + MEMORY)
        with open(writing, "wb", buffering=0) as answers:
            for path in paths:
                _limit(resource.RLIMIT_CPU, math.ceil(sum(os.times()[:2])) + SECONDS)
                if not _read_one(path, read, answers):
                    break
        status = 0
    finally:
        os._exit(status)


def _read_one(path: Path, read: Read, answers: BinaryIO) -> bool:
    """Read one file and write the result. Returns False if memory ran out."""
    try:
        found: object = [dataclasses.astuple(finding) for finding in read(path)]
    except MemoryError:
        answers.write(b'"takes too much memory, or is nested too deeply"\n')
        return False
    except Exception as error:  # a file that breaks the parser must not stop the others
        found = str(error) or type(error).__name__
    answers.write(json.dumps(found).encode() + b"\n")
    return True


def _limit(kind: int, wanted: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
