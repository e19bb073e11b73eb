"""Threads and devices that must not see each other: memory limits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdevice.virtual
from tests.virtual.harness import on

ROUNDS = 200


def side_by_side(*bodies: Callable[[], Any]) -> list[Any]:
    """What each body returned; all of them start at once, each in a thread of its own."""
    results: list[Any] = [None] * len(bodies)
    failures: list[BaseException] = []
    barrier = threading.Barrier(len(bodies))

    def run(place: int, body: Callable[[], Any]) -> None:
        try:
            barrier.wait()
            results[place] = body()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=each) for each in enumerate(bodies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


@on("cuda:2")
def test_a_limit_is_that_of_one_device() -> None:
    capacity = torch.cuda.mem_get_info(1)[1]
    torch.cuda.set_per_process_memory_fraction(1e6 / capacity, 0)
    with pytest.raises(torch.OutOfMemoryError, match="GPU 0 has a total capacity"):
        torch.empty(1_000_001, dtype=torch.uint8, device="cuda:0")
    assert torch.empty(2_000_000, dtype=torch.uint8, device="cuda:1").numel() == 2_000_000
    assert torch.cuda.mem_get_info(1)[1] == capacity
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    assert torch.empty(2_000_000, dtype=torch.uint8, device="cuda:0").numel() == 2_000_000


@on("cuda:2", env={"TORCHDEVICE_VIRTUAL_MEMORY": "1MiB"})
def test_the_public_limits_are_those_of_all_devices() -> None:
    for limit in (1 << 20, 1 << 16):
        for index in range(2):
            assert torch.cuda.mem_get_info(index)[1] == limit
            with pytest.raises(torch.OutOfMemoryError, match=f"GPU {index} "):
                torch.empty(limit + 1, dtype=torch.uint8, device=f"cuda:{index}")
        torchdevice.virtual.set_memory_limit(1 << 16)


@on("cuda")
def test_threads_together_stay_below_the_limit() -> None:
    block, room = 1000, 10
    torchdevice.virtual.set_memory_limit(block * room)

    def fill() -> list[torch.Tensor]:
        kept = []
        for _ in range(ROUNDS):
            try:
                kept.append(torch.empty(block, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                if len(kept) > 1:
                    kept.pop()
        return kept

    kept = side_by_side(*[fill] * 4)
    assert torch.cuda.max_memory_allocated() <= block * room
    assert torch.cuda.memory_allocated() == block * sum(len(each) for each in kept)
