"""A million redirected calls from 1, 2 and 8 threads: processor time grows with the calls and memory does not."""

from __future__ import annotations

import argparse
import threading
import time

import psutil
import torch

import torchdevice
from torchdevice.bench.figures import Figure, emit

COUNTS = (1, 2, 8)


def _work(calls: int, foreign: str) -> None:
    for _ in range(calls):
        torch.empty(0, device=foreign)


def _seconds(threads: int, calls: int) -> float:
    target = torchdevice.status().target
    foreign = "mps" if target == "cuda" else "cuda"
    workers = [threading.Thread(target=_work, args=(calls // threads, foreign)) for _ in range(threads)]
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
    calls = 100_000 if parser.parse_args().quick else 1_000_000
    torchdevice.activate()
    process = psutil.Process()
    _seconds(max(COUNTS), calls // 10)
    for threads in COUNTS:
        held, before = process.memory_info().rss, torchdevice.status().redirected_calls
        short, long = _seconds(threads, calls // 10), _seconds(threads, calls)
        grown = (process.memory_info().rss - held) / 1e6
        counted = torchdevice.status().redirected_calls - before
        exact = counted == (calls // 10 // threads + calls // threads) * threads
        note = f"{long / calls * 1e6:.2f} µs a call; records {'exact' if exact else f'wrong: {counted}'}"
        what = f"{calls:,} redirected calls, {threads} thread{'s' * (threads > 1)}"
        emit([Figure(f"{what}: time of ten times the calls / 10", long / short / 10, limit=1.2, note=note)])
        emit([Figure(f"{what}: memory added", max(0.0, grown), "MB", 1.0)])


if __name__ == "__main__":
    main()
