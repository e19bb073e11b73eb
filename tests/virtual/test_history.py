"""What torch tells of the memory of a virtual device: snapshots, history with stacks, observers, the profiler."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from tests.virtual.harness import on


def actions() -> list[tuple[str, int]]:
    (trace,) = torch.cuda.memory._snapshot()["device_traces"]
    return [(each["action"], each["size"]) for each in trace]


def functions_of_this_file(told: dict[str, Any]) -> list[str]:
    return [frame["name"] for frame in told["frames"] if frame["filename"] == __file__]


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_a_snapshot_has_what_is_held() -> None:
    x = torch.ones(1000, device="cuda")
    (segment,) = [each for each in torch.cuda.memory_snapshot() if each["address"] == x.data_ptr()]
    assert (segment["total_size"], segment["allocated_size"], segment["requested_size"]) == (2 << 20, 4096, 4000)
    assert (segment["device"], segment["segment_type"], segment["segment_pool_id"]) == (0, "small", (0, 0))
    held, rest = segment["blocks"]
    assert (held["state"], held["size"], held["requested_size"]) == ("active_allocated", 4096, 4000)
    assert (rest["state"], rest["size"]) == ("inactive", (2 << 20) - 4096)
    del x
    assert [len(each["blocks"]) for each in torch.cuda.memory_snapshot()] == [1]
    torch.cuda.empty_cache()
    assert torch.cuda.memory_snapshot() == []


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_a_history_has_stacks_of_this_file() -> None:
    torch.cuda.memory._record_memory_history()
    x = torch.ones(1 << 18, device="cuda")
    del x
    assert actions() == [
        ("segment_alloc", 2 << 20),
        *((action, 1 << 20) for action in ("alloc", "free_requested", "free_completed")),
    ]
    (trace,) = torch.cuda.memory._snapshot()["device_traces"]
    assert functions_of_this_file(trace[1])[0] == "test_a_history_has_stacks_of_this_file"
    kept = torch.ones(8, device="cuda")
    (held,) = [each for each in torch.cuda.memory._snapshot()["segments"] if each["address"] == kept.data_ptr()]
    assert functions_of_this_file(held["blocks"][0])[0] == "test_a_history_has_stacks_of_this_file"
    torch.cuda.memory._record_memory_history(None)
    torch.ones(8, device="cuda")
    assert actions() == []


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_a_history_keeps_the_last_entries_and_no_stacks_if_asked() -> None:
    torch.cuda.memory._record_memory_history(context=None, max_entries=4)
    for size in range(1, 9):
        x = torch.empty(size, dtype=torch.uint8, device="cuda")
    del x
    (trace,) = torch.cuda.memory._snapshot()["device_traces"]
    assert len(trace) == 4
    assert [(each["action"], each["size"]) for each in trace][-2:] == [("free_requested", 8), ("free_completed", 8)]
    assert not any(each["frames"] for each in trace)
    torch.cuda.empty_cache()
    assert torch.cuda.memory._snapshot()["segments"] == []


@on("cuda")
def test_a_history_that_is_switched_off_is_empty() -> None:
    torch.cuda.memory._record_memory_history()
    torch.ones(8, device="cuda")
    assert actions()
    torch.cuda.memory._record_memory_history(None)
    torch.cuda.memory._record_memory_history(context="state")
    assert actions() == []


@on("cuda")
def test_torchs_own_pages_can_be_made_of_it() -> None:
    from torch.cuda._memory_viz import segment_plot, segsum, trace, trace_plot

    torch.cuda.memory._record_memory_history()
    x = torch.rand(128, 128, device="cuda")
    found: dict[str, Any] = torch.cuda.memory._snapshot()
    assert str(x.nbytes) in json.dumps(found)
    trace_plot(found)  # these two raise for what they cannot read
    segment_plot(found)
    assert "segment" in segsum(found).lower()
    assert "alloc" in trace(found)


@on("cuda")
def test_observers_learn_of_memory_that_runs_out() -> None:
    seen: list[tuple[int, int, int, int]] = []
    torch.cuda.memory._record_memory_history()
    torch._C._cuda_attach_out_of_memory_observer(lambda *told: seen.append(told))
    torch.cuda.set_per_process_memory_fraction(0.0)
    total = torch.cuda.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
    assert seen == [(0, 4 << 20, total, total)]
    assert actions()[-1] == ("oom", 4 << 20)


@on("cuda", only_cpu="the accelerator has its own allocator")
def test_the_profiler_is_told_of_memory() -> None:
    with torch.profiler.profile(profile_memory=True) as profiler:
        x = torch.ones(1 << 18, device="cuda")
        del x
    changes = [event.self_device_memory_usage for event in profiler.events()]
    assert sum(change for change in changes if change > 0) == 1 << 20
