"""Many threads at once: no exception, no wrong device, exact counts."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

import torchdevice
from tests.virtual.harness import on, run_python

THREADS, CALLS = 32, 300


def in_threads(work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def body(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=body, args=(number,)) for number in range(THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not errors, errors[:3]


def test_counts_are_exact() -> None:
    with torchdevice.redirect(target="cpu"):
        before = torchdevice.status().redirected_calls

        def work(number: int) -> None:
            for _ in range(CALLS):
                torch.empty(1, device="cuda")
                torch.ones(1).to("cuda")

        in_threads(work)
        assert torchdevice.status().redirected_calls - before == 2 * THREADS * CALLS


@on("cuda")
def test_the_override_belongs_to_its_thread() -> None:
    torchdevice.activate(policy="accelerate")

    def work(number: int) -> None:
        for _ in range(CALLS // 10):
            if number % 2:
                with torchdevice.cpu_override():
                    assert torch.ones(1, device="cpu").device.type == "cpu"
                    with torchdevice.cpu_override():
                        assert torch.ones(1, device="cpu").device.type == "cpu"
                    assert torch.ones(1, device="cpu").device.type == "cpu"
            else:
                assert torch.ones(1, device="cpu").device.type == "cuda"
                with torchdevice.suspended():
                    assert torch.ones(1, device="cpu").device.type == "cpu"

    in_threads(work)


def test_activation_while_others_compute() -> None:
    """Threads that run through an activation or its end see plain torch or ours, never something in between."""
    stop = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            for _ in range(20):
                with torchdevice.redirect(target="cpu"):
                    assert torch.empty(1, device="cuda").device.type == "cpu"
            stop.set()
        else:
            while not stop.is_set():
                assert torch.empty(2, device="cpu").to(torch.float64).cpu().device.type == "cpu"
                torch.device("cpu")

    in_threads(work)
    assert not torchdevice.is_active()


@pytest.mark.long
def test_a_short_soak() -> None:
    done = run_python("-m", "tools.hardening.soak", "20")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
