"""When the host waits for a virtual CUDA device: streams that sleep, the debug mode for it, captures."""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable

import pytest
import torch

import torchdevice.virtual
from tests.virtual.harness import on
from torchdevice.answers.counted import resident
from torchdevice.profiling import _rows, _typed
from torchdevice.virtual.build import OPERATOR_TIMES, load

SOME_MS = 200
CYCLES = 1_410_000 * SOME_MS  # the virtual device's clock


@on("cuda:2", only_cpu="only a simulated stream sleeps")
def test_a_stream_sleeps_for_those_who_wait_for_it() -> None:
    stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
    start = torch.cuda.Event(enable_timing=True)
    begun = time.monotonic()
    with torch.cuda.stream(stream):
        start.record()
        torch.cuda._sleep(CYCLES)
        event.record()
    assert (stream.query(), event.query(), torch.cuda.default_stream().query()) == (False, False, True)
    torch.cuda.synchronize(1)  # another device's work is done
    assert time.monotonic() - begun < SOME_MS / 1000
    event.synchronize()
    assert time.monotonic() - begun >= SOME_MS / 1000
    assert event.query()
    assert start.elapsed_time(event) >= SOME_MS


@on("cuda", only_cpu="only a simulated stream sleeps")
def test_streams_wait_for_each_other() -> None:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        torch.cuda._sleep(CYCLES)
    assert second.query()
    second.wait_stream(first)
    assert not second.query()
    torch.cuda.synchronize()
    assert first.query()
    assert second.query()


@on("cuda", only_cpu="only a simulated stream sleeps")
@pytest.mark.parametrize("non_blocking", [True, False])
def test_copies_wait_unless_they_are_told_not_to(non_blocking: bool) -> None:
    x = torch.ones(3, device="cuda")
    torch.cuda._sleep(CYCLES)
    x.to("cpu", non_blocking=non_blocking)
    assert torch.cuda.current_stream().query() is not non_blocking


WAITING: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda x: x[0].item(),
    "cpu": lambda x: x.cpu(),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "masked write": lambda x: x.index_put_((x > 0,), x.clone()),
    "masked_select": lambda x: x.masked_select(x > 1),
    "unique": lambda x: x.unique(),
    "equal": lambda x: x.equal(x),
    "truth": lambda x: bool(x[0] > 0),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, x.long()),
}
GOING_ON: dict[str, Callable[[torch.Tensor], object]] = {
    "add": lambda x: x + x,
    "indices": lambda x: x[(x > 1).long()],
    "non-blocking copy": lambda x: x.to("cpu", non_blocking=True),
    "known size": lambda x: torch.repeat_interleave(x, x.long(), output_size=6),
    "where": lambda x: torch.where(x > 1, x, 0),
}


@on("cuda")
@pytest.mark.parametrize("name", WAITING)
def test_the_debug_mode_finds_what_waits(name: str) -> None:
    x = torch.tensor([1.0, 2.0, 3.0], device="cuda")
    torch.cuda.set_sync_debug_mode("warn")
    with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
        WAITING[name](x)
    torch.cuda.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
        WAITING[name](x)
    torch.cuda.set_sync_debug_mode("default")
    WAITING[name](x)


@on("cuda")
@pytest.mark.parametrize("name", GOING_ON)
def test_the_debug_mode_lets_go_on_what_does(name: str) -> None:
    x = torch.tensor([1.0, 2.0, 3.0], device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    GOING_ON[name](x)
    torch.cuda.set_sync_debug_mode("default")


WAITING_FOR_ALL: dict[str, Callable[[torch.Tensor], object]] = {
    "device": lambda x: torch.cuda.synchronize(),
    "accelerator": lambda x: torch.accelerator.synchronize(),
    "stream": lambda x: torch.cuda.current_stream().synchronize(),
}
REFUSED = {name: call for name, call in WAITING.items() if name != "masked write"} | WAITING_FOR_ALL


@on("cuda")
@pytest.mark.parametrize("name", REFUSED)
def test_a_capture_refuses_what_waits(name: str) -> None:
    x = torch.tensor([1.0, 2.0, 3.0], device="cuda")
    graph, said = torch.cuda.CUDAGraph(), "not permitted when stream is capturing"
    with pytest.raises(torch.AcceleratorError, match=said) as refused, torch.cuda.graph(graph):
        REFUSED[name](x)
    assert refused.value.error_code == 900
    torch.cuda.synchronize()


@on("cuda")
def test_a_capture_writes_into_what_it_made_itself() -> None:
    x, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = torch.empty(0, device="cuda")
        torch.add(x, 1, out=out)
    x.fill_(2)
    graph.replay()
    assert out.tolist() == [3.0, 3.0, 3.0, 3.0]


@on("cuda")
def test_a_capture_gives_other_memory_to_what_was_there_before() -> None:
    x, out, graph = torch.ones(4, device="cuda"), torch.empty(0, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.add(x, 1, out=out)
    graph.replay()
    assert out.tolist() == [2.0, 2.0, 2.0, 2.0]


@on("cuda")
def test_numbers_are_drawn_by_replays_and_not_by_the_capture() -> None:
    torch.cuda.manual_seed(5)
    expected = [torch.rand(3, device="cuda") for _ in range(2)]
    torch.cuda.manual_seed(5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        drawn = torch.rand(3, device="cuda")
    for each in expected:
        graph.replay()
        torch.testing.assert_close(drawn, each, rtol=0, atol=0)


@on("cuda")
def test_a_model_whose_callable_is_graphed_trains_as_before() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).cuda()
    x = torch.randn(4, 8, device="cuda")
    expected = model(x)
    graphed = torch.cuda.make_graphed_callables(model, (x.clone(),))
    torch.testing.assert_close(graphed(x), expected)


@on("cuda", only_cpu="the accelerator does not know of the registration")
def test_memory_that_was_registered_is_pinned() -> None:
    x = torch.ones(20)
    assert not x.is_pinned()
    assert torch.cuda.cudart().cudaHostRegister(x.data_ptr(), x.nbytes, 0) == 0
    assert x.is_pinned()
    assert torch.cuda.cudart().cudaHostUnregister(x.data_ptr()) == 0
    assert not x.is_pinned()


@on("mps", only_cpu="only a simulated stream sleeps")
def test_mps_waits_for_the_events_of_a_time() -> None:
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    start.record()
    load().td_keep_busy(ctypes.c_double(SOME_MS))
    end.record()
    assert not end.query()
    assert start.elapsed_time(end) >= SOME_MS


@on("cuda:2", only_cpu="only a simulated stream sleeps")
def test_times_are_those_of_one_device_and_of_work_that_is_done() -> None:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    events[0].record()
    with torch.cuda.device(1):
        events[1].record()
    with pytest.raises(RuntimeError, match="CUDA error: invalid resource handle"):
        events[0].elapsed_time(events[1])
    torch.cuda._sleep(CYCLES)
    events[2].record()
    with pytest.raises(RuntimeError, match="CUDA error: device not ready"):
        events[0].elapsed_time(events[2])
    torch.cuda.synchronize()
    assert events[0].elapsed_time(events[2]) >= SOME_MS


@on("cuda")
def test_the_runtime_makes_streams() -> None:
    handle = ctypes.c_void_p(0)
    assert torch.cuda.cudart().cudaStreamCreate(ctypes.addressof(handle)) == 0
    assert handle.value
    stream = torch.cuda.ExternalStream(handle.value)
    assert stream.cuda_stream == handle.value != torch.cuda.current_stream().cuda_stream
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
    assert torch.cuda.cudart().cudaStreamDestroy(handle.value) == 0
    before = torch.cuda.memory_stats()["num_sync_all_streams"]
    torch.cuda.empty_cache()
    assert torch.cuda.memory_stats()["num_sync_all_streams"] == before + 1


@on("cuda")
def test_events_and_streams_that_nobody_holds_are_gone() -> None:
    event, stream = torch.cuda.Event(enable_timing=True), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        event.record()
    event.synchronize()
    gone = [weakref.ref(event), weakref.ref(stream)]
    del event, stream
    assert [each() for each in gone] == [None, None]
    before = resident()
    for _ in range(20_000):
        event = torch.cuda.Event()
        event.record()
    assert resident() - before < 4 << 20  # an event that stayed would take at least 200 bytes


@on("xpu", only_cpu="only a simulated stream sleeps")
def test_the_time_of_an_operator_in_a_profile_includes_the_wait_for_the_device() -> None:
    timer = _typed(load(OPERATOR_TIMES))
    x = torch.ones(3, device="xpu")
    there = torchdevice.virtual.installed()
    assert there is not None
    there.library.call("keep_busy", SOME_MS)
    timer.td_observe()
    x + 1
    timer.td_observe_stop()
    (nanoseconds,) = [int(row[3]) for row in _rows(timer.td_observed()) if row[:2] == ["aten::add", "xpu"]]
    assert nanoseconds >= SOME_MS * 1e6 / 2  # the device began before the operator
