"""Workers that call: processes that are watched. A call that crashes or hangs costs that call and a fresh worker."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
SECONDS_A_CALL = 20  # without an answer and without work
SECONDS_AT_WORK = 90  # the same for a call that computes: on a busy machine that is not a hang
SECONDS_TO_START = 180
SHARD = 700  # calls a process makes before a fresh one takes over: what calls leave behind does not pile up

_running: set[subprocess.Popen[bytes]] = set()

Row = dict[str, Any]
Report = Callable[[Row], None]


def run_all(host: str, jobs: list[Row], workers: int, report: Report, shard: int = SHARD) -> None:
    """Every job on a host, `shard` of them a process; `report` gets each row as it comes."""
    pending: queue.SimpleQueue[list[Row]] = queue.SimpleQueue()
    for start in range(0, len(jobs), shard):
        pending.put(jobs[start : start + shard])
    lock = threading.Lock()

    def locked(row: Row) -> None:
        with lock:
            report(row)

    stop = threading.Event()
    failures: list[RuntimeError] = []

    def work() -> None:
        while not stop.is_set():
            try:
                some = pending.get_nowait()
            except queue.Empty:
                return
            try:
                _run_shard(host, some, locked, stop)
            except RuntimeError as error:  # a worker that cannot start: raised below, where somebody hears it
                failures.append(error)
                stop.set()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():  # in short steps, so that Ctrl-C is heard
                thread.join(0.2)
    finally:
        stop.set()
        for process in list(_running):  # none, unless we were interrupted
            _end(process)
    if failures:
        raise failures[0]


def _run_shard(host: str, jobs: list[Row], report: Report, stop: threading.Event) -> None:
    left = list(jobs)
    while left:
        ended = _one_worker(host, left, report)
        if ended is None or stop.is_set():  # when we are stopped, the worker was ended by us, not by its call
            return
        name, why = ended
        if name is None:
            raise RuntimeError(f"{host}: a worker {why} before its first call; {len(left)} calls are left")
        report({"name": name, "by": "call", "call": "", "results": [], "errors": {"0": why}, "seconds": 0})
        left = [job for job in left if job["name"] != name]


def _one_worker(host: str, left: list[Row], report: Report) -> tuple[str | None, str] | None:
    """Feeds one process; None if it did everything, else the name that it died of, and how."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tools.catalog.worker", host],
        cwd=ROOT,
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _running.add(process)
    assert process.stdin is not None
    assert process.stdout is not None
    lines = "".join(json.dumps(job) + "\n" for job in left).encode()
    feeder = threading.Thread(target=_feed, args=(process.stdin, lines), daemon=True)
    feeder.start()
    current: str | None = None
    try:
        for line in _lines(process):
            if line is None:
                return current, "hung: no answer"
            row = json.loads(line)
            if row.get("started"):
                current = row["name"]
            else:
                report(row)
                left[:] = [job for job in left if job["name"] != row["name"]]
                current = None
        code = process.wait(10)
        return None if not left else (current, f"crashed: exit code {code}")
    finally:
        _end(process)


def _feed(stream: Any, data: bytes) -> None:
    try:
        stream.write(data)
        stream.close()
    except BrokenPipeError:  # the worker died: its rows tell
        return


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes | None]:
    """Whole lines as they come; None when nothing came for too long."""
    stream: Any = process.stdout
    selector = selectors.DefaultSelector()
    selector.register(stream, selectors.EVENT_READ)
    kept, last, patience, worked = b"", time.monotonic(), SECONDS_TO_START, 0.0
    while True:
        if not selector.select(timeout=1):
            silent = time.monotonic() - last
            if silent > max(patience, SECONDS_AT_WORK) or (silent > patience and _work(process) - worked < 1):
                yield None
                return
            continue
        chunk = os.read(stream.fileno(), 1 << 16)
        if not chunk:
            return
        *whole, kept = (kept + chunk).split(b"\n")
        last, patience, worked = time.monotonic(), SECONDS_A_CALL, _work(process)
        yield from whole


def _work(process: subprocess.Popen[bytes]) -> float:
    """Seconds of processor time so far."""
    try:
        times = psutil.Process(process.pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _end(process: subprocess.Popen[bytes]) -> None:
    """The worker and what its calls have started."""
    with contextlib.suppress(ProcessLookupError):  # gone already
        os.killpg(process.pid, 9)
    process.wait()
    _running.discard(process)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TORCHDEVICE")}
    if "TORCHDEVICE_CACHE" in os.environ:
        kept["TORCHDEVICE_CACHE"] = os.environ["TORCHDEVICE_CACHE"]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return kept | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
