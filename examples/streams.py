"""Streams and events: a copy on a separate stream, work that waits for it, and a time measurement.

torchdevice run examples/streams.py
"""

import torch

copies = torch.cuda.Stream()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
host = torch.arange(1_000_000, dtype=torch.float32).pin_memory()

start.record()
with torch.cuda.stream(copies):
    device = host.to("cuda", non_blocking=True)
    copied = copies.record_event()
torch.cuda.current_stream().wait_event(copied)
device.record_stream(torch.cuda.current_stream())
total = device.sum()
end.record()
end.synchronize()

print("the sum is right:", total.item() == host.sum().item())
print(f"copy and sum took {start.elapsed_time(end):.2f} ms; the stream is done: {copies.query()}")
