"""Threads and devices that must not see each other: memory limits, random numbers, graphs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

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
    block, room = 1024, 10
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


def draw(device: str, x: torch.Tensor) -> list[torch.Tensor]:
    """Operators that take a generator, and one that takes none (`native_dropout`, of which dropout is made on GPUs)."""
    return [
        y.cpu()
        for _ in range(ROUNDS)
        for y in (
            nn.functional.dropout(x, 0.5),
            torch.rand(3, device=device),
            torch.bernoulli(x * 0.5),
            torch.randperm(5, device=device),
        )
    ]


@on("cuda:2")
def test_devices_draw_apart() -> None:
    devices = ("cuda:0", "cuda:1")
    inputs = [torch.ones(64, device=device, requires_grad=True) for device in devices]

    def cpu_draws() -> list[torch.Tensor]:
        return [torch.rand(3) for _ in range(2 * ROUNDS)]

    def seed() -> None:
        torch.manual_seed(0)
        torch.cuda.manual_seed(7)
        torch.cuda.default_generators[1].manual_seed(7)

    seed()
    alone = [draw(device, x) for device, x in zip(devices, inputs, strict=True)]
    before = torch.get_rng_state()
    assert torch.equal(before, torch.Generator().manual_seed(0).get_state())
    cpu_alone = cpu_draws()

    seed()
    together = side_by_side(lambda: draw(devices[0], inputs[0]), lambda: draw(devices[1], inputs[1]), cpu_draws)
    for expected, found in zip((*alone, cpu_alone), together, strict=True):
        for a, b in zip(expected, found, strict=True):
            assert torch.equal(a, b)


@on("cuda")
def test_dropout_is_that_of_the_cpu() -> None:
    for x in (torch.ones(4, 5), torch.ones(0), torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)])):
        for p, train in ((0.5, True), (0.0, True), (1.0, True), (0.5, False), (0.5, None)):
            torch.manual_seed(3)
            expected = torch.native_dropout(x, p, train)
            after = torch.get_rng_state()
            torch.manual_seed(3)
            found = torch.native_dropout(x.cuda(), p, train)
            assert torch.equal(torch.cuda.get_rng_state(), after)
            for a, b in zip(expected, found, strict=True):
                assert b.is_cuda
                assert (a.dtype, a.layout, a.is_nested) == (b.dtype, b.layout, b.is_nested)
                pieces = zip(a.unbind(), b.unbind(), strict=True) if a.is_nested else [(a, b)]
                assert all(torch.equal(one, other.cpu()) for one, other in pieces)


@on("cuda:2", only_cpu="kernels of the CPU draw from the CPU's generator")
def test_operators_of_other_libraries_draw_from_their_device() -> None:
    library = torch.library.Library("drawing", "DEF")
    library.define("noise(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
    library.impl("noise", lambda x: torch.rand(x.shape), "CPU")

    def noises(device: str) -> list[torch.Tensor]:
        x = torch.ones(4, device=device)
        return [torch.ops.drawing.noise(x).cpu() for _ in range(ROUNDS)]

    def seed() -> None:
        torch.manual_seed(0)
        torch.cuda.manual_seed_all(7)

    seed()
    alone = [noises("cuda:0"), noises("cuda:1")]
    seed()
    together = side_by_side(lambda: noises("cuda:0"), lambda: noises("cuda:1"))
    for expected, found in zip(alone, together, strict=True):
        assert torch.equal(torch.stack(expected), torch.stack(found))
    assert torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(0).get_state())


def capture_beside(other: Callable[[], Any]) -> Any:
    """What `other` returned in a second thread, which ran while this one captured `x * 2` and a step of a counter."""
    x, steps = torch.ones(3, device="cuda"), torch.zeros(1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
        [result] = side_by_side(other)
        steps += 1
    assert steps.item() == 0
    x.fill_(5)
    graph.replay()
    assert y.tolist() == [10.0] * 3
    assert steps.item() == 1
    return result


@on("cuda")
def test_a_thread_computes_while_another_captures() -> None:
    count = torch.zeros(1, device="cuda")

    def other() -> bool:
        nonlocal count
        count += 1
        return torch.cuda.is_current_stream_capturing()

    assert capture_beside(other) is False
    assert count.item() == 1  # carried out, neither taken back nor replayed


@on("cuda")
def test_threads_capture_side_by_side() -> None:
    def other() -> None:
        torch.cuda.set_stream(torch.cuda.Stream())  # a capture on the default one is refused
        graph = torch.cuda.CUDAGraph()
        z = torch.ones(2, device="cuda")
        graph.capture_begin()
        assert torch.cuda.is_current_stream_capturing()
        z += 1
        graph.capture_end()
        assert not torch.cuda.is_current_stream_capturing()
        assert z.tolist() == [1.0, 1.0]
        graph.replay()
        assert z.tolist() == [2.0, 2.0]

    capture_beside(other)


@on("cuda")
def test_a_capture_belongs_to_its_thread() -> None:
    torch.cuda.set_stream(torch.cuda.Stream())  # a capture on the default one is refused
    graph, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    x = torch.ones(2, device="cuda")
    graph.capture_begin()
    x += 1
    with pytest.raises(RuntimeError, match="captures cannot be nested"):
        second.capture_begin()
    with pytest.raises(RuntimeError, match="from another thread"):
        side_by_side(graph.capture_end)
    assert torch.cuda.is_current_stream_capturing()
    graph.capture_end()
    with pytest.raises(RuntimeError, match="without a preceding capture_begin"):
        graph.capture_end()
    graph.replay()
    assert x.tolist() == [2.0, 2.0]


@on("cuda")
def test_a_graph_dropped_by_another_thread_ends_its_capture() -> None:
    torch.cuda.set_stream(torch.cuda.Stream())  # a capture on the default one is refused
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    side_by_side(graph.reset)
    assert not torch.cuda.is_current_stream_capturing()
    x = torch.ones(2, device="cuda")
    x += 1
    assert x.tolist() == [2.0, 2.0]
    again = torch.cuda.CUDAGraph()
    again.capture_begin()
    x += 1
    again.capture_end()
    assert x.tolist() == [2.0, 2.0]


@on("cuda")
def test_a_capture_holds_the_backward_that_autograd_runs_for_it() -> None:
    x = torch.ones(2, device="cuda", requires_grad=True)
    (x * 3).sum().backward()  # autograd's own threads exist
    x.grad = torch.zeros_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (x * 3).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]
    graph.replay()
    graph.replay()
    assert x.grad.tolist() == [6.0, 6.0]


@on("cuda")
def test_a_profiler_may_outlive_a_capture() -> None:
    torch.cuda.set_stream(torch.cuda.Stream())  # a capture on the default one is refused
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    graph, x = torch.cuda.CUDAGraph(), torch.ones(2, device="cuda")
    graph.capture_begin()
    profiler.start()
    x += 1
    graph.capture_end()
    profiler.stop()
    assert not torch.cuda.is_current_stream_capturing()
    assert x.tolist() == [1.0, 1.0]
    graph.replay()
    assert x.tolist() == [2.0, 2.0]


@on("cuda", only_cpu="a forked process cannot use an accelerator")
def test_a_fork_beside_a_thread_that_allocates_does_not_hang() -> None:
    done = threading.Event()

    def allocate() -> None:
        while not done.is_set():
            torch.empty(1, device="cuda")

    thread = threading.Thread(target=allocate, daemon=True)
    thread.start()
    for _ in range(30):
        child = os.fork()
        if not child:
            signal.alarm(20)
            torch.empty(1, device="cuda")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    done.set()
    thread.join()
