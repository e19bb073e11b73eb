"""A million redirected calls from 1, 2 and 8 threads: processor time grows with the calls and memory does not.

Threads on two cores that exchange Python's lock need time for every exchange, also without TorchDevice. For comparison,
each row has the time of the same number of calls of a plain Python function that takes about as long.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable

import psutil
import torch

import torchdevice
from torchdevice.bench.runner import Figure, emit

COUNTS, PARTS, TURNS = (1, 2, 8), 10, 3
AS_LONG = range(200)  # their sum takes about as long as a redirection


def _seconds(threads: int, calls: int, call: Callable[[], object]) -> float:
    def work() -> None:
        for _ in range(calls // threads):
            call()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    start = time.process_time()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.process_time() - start


def main() -> None:
    """Rows on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    calls, turns = (100_000, 1) if parser.parse_args().quick else (1_000_000, TURNS)
    plain_empty = torch.empty
    torchdevice.activate()
    target = torchdevice.status().target
    foreign, native = "mps" if target == "cuda" else "cuda", torch.device(target)

    def redirected() -> object:
        return torch.empty(0, device=foreign)

    def plain() -> object:
        sum(AS_LONG)
        return plain_empty(0, device=native)

    process = psutil.Process()
    _seconds(max(COUNTS), calls // PARTS, redirected)
    for threads in COUNTS:
        held, before = process.memory_info().rss, torchdevice.status().redirected_calls
        ratios, micros = [], []
        for _ in range(turns):
            in_parts = sum(_seconds(threads, calls // PARTS, redirected) for _ in range(PARTS))
            at_once = _seconds(threads, calls, redirected)
            ratios.append(at_once / in_parts)
            micros.append(at_once / calls * 1e6)
        grown = (process.memory_info().rss - held) / 1e6
        counted = torchdevice.status().redirected_calls - before
        expected = turns * threads * (PARTS * (calls // PARTS // threads) + calls // threads)
        beside = _seconds(threads, calls, plain) / calls * 1e6
        note = f"{statistics.median(micros):.2f} µs per call, a plain Python function {beside:.2f} µs, "
        note += f"{turns} turn{'s' * (turns > 1)}; records "
        note += "exact" if counted == expected else f"wrong: {counted} of {expected}"
        what = f"{calls:,} redirected calls, {threads} thread{'s' * (threads > 1)}"
        emit([Figure(f"{what}: time at once / in ten parts", statistics.median(ratios), limit=1.2, note=note)])
        emit([Figure(f"{what}: memory added", max(0.0, grown), "MB", 1.0)])


if __name__ == "__main__":
    main()
