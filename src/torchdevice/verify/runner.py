"""Runs the parts, each in child processes. A check that crashes or hangs costs itself alone. Does not import torch.

Every finding is stored at once, so an interrupted run goes on where it was interrupted.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torchdevice.errors import TorchDeviceError, explain_error
from torchdevice.verify.findings import CRASHED, HUNG, PLAIN, Finding, in_one_line
from torchdevice.verify.parts import PARTS, Part
from torchdevice.verify.record import Record, Stage
from torchdevice.verify.worker import MACHINE, START

WORKER = (sys.executable, "-W", "ignore", "-m", "torchdevice.verify.worker")
EXIT_SECONDS = 30.0  # a process with a broken device needs time to exit
START_SECONDS = 300.0  # `import torch`, the first use of a device, and torch's operator database
# Would change what a device does by itself.
_REMOVED = ("TORCH_ALLOW_REDIRECTS", "PYTORCH_ENABLE_MPS_FALLBACK", "CUDA_LAUNCH_BLOCKING")
_KEPT = ("TORCHDEVICE_CACHE",)

Told = Callable[[Finding], None]


class Child:
    """A worker process, read line by line with a time limit."""

    def __init__(self, command: Sequence[str], done: Sequence[str]) -> None:
        self._words = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            command,
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended already, which `line` reports
            self._process.stdin.write(json.dumps(list(done)))
            self._process.stdin.close()
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{") and line.endswith("}\n"):  # else the process ended while it wrote
                self._lines.put(json.loads(line))
        self._lines.put(None)

    def line(self, seconds: float) -> dict[str, Any] | None:
        """The next line, or None at the end. Raises TimeoutError."""
        try:
            return self._lines.get(timeout=max(0.0, seconds))
        except queue.Empty as error:
            raise TimeoutError from error

    def end(self) -> str:
        """Wait for the end of a process that has closed its output. Returns how it ended: "" if without an error.

        A process that does not exit is killed. Then its checks have ended, so this is not an error of a check.
        """
        try:
            code = self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return ""
        if not code:
            return ""
        self._words.seek(0)
        said = [line for line in self._words.read().strip().splitlines() if line.strip()]
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return in_one_line(f"{how}: {said[-1]}" if said else how)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in _KEPT or not (k.startswith("TORCHDEVICE") or k in _REMOVED)}
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, (package, kept.get("PYTHONPATH"))))}


def describe_machine(virtual: str, command: Sequence[str] = WORKER) -> dict[str, Any]:
    """The facts that the file begins with, read in a child like everything else."""
    child = Child([*command, MACHINE, PLAIN, virtual], ())
    try:
        line = child.line(START_SECONDS)
        ended = child.end()
    except TimeoutError:
        line, ended = None, "it hangs"
        child.kill()
    if line is None or MACHINE not in line:
        asked = f"a device of {virtual!r} was requested" if virtual else "the accelerator of this machine was requested"
        hint = "torchdevice doctor names what is missing"
        raise TorchDeviceError(explain_error(asked, f"a process that uses it failed: {ended or 'exit status 0'}", hint))
    machine: dict[str, Any] = line[MACHINE]
    return machine


def explore(
    part: Part, way: str, virtual: str, done: set[str], seconds: float, command: Sequence[str] = WORKER
) -> Iterator[Finding | int]:
    """The findings of all checks that are not done, after the number of all checks. Ends after `seconds`."""
    until = time.monotonic() + seconds
    total = 0
    while True:
        child = Child([*command, part.name, way, virtual], sorted(done))
        current = last = ""
        try:
            while True:
                left = until - time.monotonic()
                limit = part.seconds if last else START_SECONDS
                line = child.line(min(left, limit))
                if line is None:
                    break
                if "checks" in line:
                    total = line["checks"]
                    yield total
                elif "started" in line:
                    current = last = line["started"]
                else:
                    done.add(line["check"])
                    current = ""
                    yield Finding(part.name, way, **line)
            how = child.end()
            if total and len(done) >= total:
                return
            if not (how or current) and last:  # it ended itself because the device was no longer usable
                continue
            how = how or "exit status 0"
            how = how if current or not last else f"after its end: {how}"  # kernels of a device can fail later
            told = Finding(part.name, way, current or last or START, CRASHED, how)
        except TimeoutError:
            if time.monotonic() >= until:
                return  # the check that was interrupted runs again in the next run
            how = f"did not end in {limit:.0f} s"
            how = how if current or not last else f"after its end: {how}"
            told = Finding(part.name, way, current or last or START, HUNG, how)
        finally:
            child.kill()
        done.add(told.check)
        yield told
        if told.check == START:
            return


def run(
    record: Record,
    save: Callable[[Record], None],
    told: Told = lambda finding: None,
    command: Sequence[str] = WORKER,
    parts: Sequence[Part] = PARTS,
) -> Record:
    """Everything that the record lacks, within its minutes. `save` is called after each finding."""
    for part in parts:
        for way in part.ways:
            done = {each.check for each in record.findings if (each.part, each.way) == (part.name, way)} - {START}
            stage = record.stage(part.name, way)
            if stage.checks and len(done) >= stage.checks:
                continue
            seconds = part.share * record.minutes * 60 if part.share else float("inf")
            total, started = stage.checks, time.monotonic() - stage.seconds
            for found in explore(part, way, record.machine["virtual"], done, seconds, command):
                if isinstance(found, int):
                    total = found
                    record = record.without(part.name, way, START)  # of an earlier run that could not begin
                else:
                    record = record.with_finding(found)
                    told(found)
                record = record.with_stage(Stage(part.name, way, total, round(time.monotonic() - started, 1)))
                save(record)
    return record
