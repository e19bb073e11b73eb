"""Reads files in a child with limits on memory and time: a file can be written so that parsing it takes all of both.

A child reads one file after another and answers with a line of JSON for each. Where it ends before its last answer, the
file that it was at is the reason, and the next child goes on behind it.
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

MEMORY = 1 << 30  # bytes that a file may take beyond what the child begins with
SECONDS = 20  # of computing; waiting for a busy machine does not count

Read = Callable[[Path], list[Finding]]


def read_each(paths: Sequence[Path], read: Read) -> Iterator[list[Finding] | str]:
    """What was found in each file, or why it could not be read."""
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
                    if line.endswith(b"\n"):  # else the child was ended while it wrote
                        yield _answer(line)
                        done += 1
            status = os.waitpid(child, 0)[1]
        finally:
            if status is None:  # whoever asked has gone
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
    """The life of a child. It ends after a file for which there was no memory: some of that may be lost."""
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
    """Whether there was memory enough."""
    try:
        found: object = [dataclasses.astuple(finding) for finding in read(path)]
    except MemoryError:
        answers.write(b'"takes too much memory, or is nested too deeply"\n')
        return False
    except Exception as error:  # whatever a file makes a parser raise, the other files are read
        found = str(error) or type(error).__name__
    answers.write(json.dumps(found).encode() + b"\n")
    return True


def _limit(kind: int, wanted: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
