"""The profiler recipe: both activities, a schedule, record_function, export_chrome_trace, tables, CUDA events, NVTX."""

import json
import os
import tempfile

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule

torch.manual_seed(0)
rng = np.random.RandomState(0)
folder = tempfile.mkdtemp()
inputs = torch.from_numpy(rng.randn(16, 3, 16, 16).astype(np.float32)).cuda()
labels = torch.from_numpy(rng.randint(0, 4, 16)).cuda()
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 4)).cuda()
criterion = nn.CrossEntropyLoss().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def trace_handler(p):
    print(p.key_averages().table(sort_by="self_cuda_time_total", row_limit=5))
    p.export_chrome_trace(os.path.join(folder, f"trace_{p.step_num}.json"))


losses = []
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
    on_trace_ready=trace_handler,
    record_shapes=True,
    profile_memory=True,
    with_stack=True,
) as prof:
    for _step in range(8):
        torch.cuda.nvtx.range_push("step")
        with record_function("model_training_step"):
            with record_function("forward"):
                loss = criterion(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.cuda.nvtx.range_pop()
        losses.append(loss.item())
        prof.step()
end.record()
torch.cuda.synchronize()
print(f"{start.elapsed_time(end):.1f} ms")

traces = sorted(os.listdir(folder))
assert len(traces) == 2, traces
for trace in traces:
    with open(os.path.join(folder, trace)) as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"]]
    assert names.count("model_training_step") >= 2, trace
    assert "aten::convolution" in names

with torch.autograd.profiler.profile(use_device="cuda") as prof:
    model(inputs).sum().backward()
assert len(prof.key_averages()) > 5
with torch.autograd.profiler.emit_nvtx():
    losses.append(criterion(model(inputs), labels).item())
devices = sorted({str(parameter.device) for parameter in model.parameters()})
print("RESULT", json.dumps({"steps": 8, "devices": devices, "values": losses}))
