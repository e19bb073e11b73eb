"""The profiler, timers and tracing of memory."""

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from tests.semantics.program import gives


def operators_are_recorded(d):
    with profile(activities=[ProfilerActivity.CPU]) as p:
        torch.ones(4, 4, device=d).matmul(torch.ones(4, 4, device=d))
    names = {event.key for event in p.key_averages()}
    return ["aten::matmul" in names, "aten::mm" in names]


def ranges_are_recorded(d):
    with profile(activities=[ProfilerActivity.CPU]) as p, record_function("my range"):
        torch.ones(2, device=d).sum()
    return "my range" in {event.key for event in p.key_averages()}


@gives([True, "str"])
def the_device_is_asked_for(d):
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as p:
        torch.ones(2, device=d).sum()
    table = p.key_averages().table(sort_by="cuda_time_total", row_limit=5)
    return [len(p.key_averages()) > 0, type(table).__name__]


def steps_are_scheduled(d):
    seen = []
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=1, repeat=1),
        on_trace_ready=lambda p: seen.append(p.step_num),
    ) as p:
        for _ in range(4):
            torch.ones(2, device=d).sum()
            p.step()
    return seen


def autograd_profiler(d):
    with torch.autograd.profiler.profile() as p:
        torch.ones(2, device=d).sum()
    return any(event.key == "aten::sum" for event in p.key_averages())


@gives([True, True])
def emit_nvtx(d):
    with torch.autograd.profiler.emit_nvtx():
        x = torch.ones(2, device=d).sum()
    return [x.item() == 2.0, torch.cuda.is_available()]
