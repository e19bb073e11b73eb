"""An epoch of a DataLoader with redirected batches, relative to plain torch, with 0 and with 4 workers.

Without workers all work is done in this process, so processor time is more precise than wall time. It runs with one
thread, as in workers, because threads that wait for each other also use processor time.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

import torchdevice
from torchdevice.bench.runner import AGAIN, Figure, Timed, emit, interleaved

ITEMS, BATCH, SIDE = 128, 16, 224
ROUNDS = {0: 40, 4: 20}  # by the number of workers


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Creates each image on access, as a decoder does."""

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = torch.linspace(0, index, 3 * SIDE * SIDE).view(3, SIDE, SIDE)
        return (picture - picture.mean()) / (picture.std() + 1), index % 10


def _epoch(workers: int, entered: Callable[[], AbstractContextManager[Any]], device: str) -> Timed:
    clock = time.perf_counter if workers else time.process_time

    def epoch() -> float:
        start = clock()
        for pictures, _ in DataLoader(Images(), batch_size=BATCH, num_workers=workers):
            pictures.to(device)
        return clock() - start

    def seconds() -> float:
        with entered():
            epoch()  # not counted: it follows an activation, which a program does once
            return epoch()

    return seconds


def main() -> None:
    """Rows on stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    target = (torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")).type
    for workers, rounds in ROUNDS.items():
        rounds = min(rounds, 5) if quick else rounds
        ways = {
            "plain": _epoch(workers, contextlib.nullcontext, target),
            "active": _epoch(workers, lambda: torchdevice.redirect(target=target, policy="portable"), target),
            AGAIN: _epoch(workers, contextlib.nullcontext, target),
        }
        found = interleaved(ways, "plain", rounds)
        for name, limit in (("active", 1.02), (AGAIN, None)):
            median, spread = found[name]
            what, note = f"epoch of a DataLoader, {workers} workers: {name}", f"{rounds} rounds"
            emit([Figure(what, median, limit=limit, spread=spread, note=note)])


if __name__ == "__main__":
    main()
