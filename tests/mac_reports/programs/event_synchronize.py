import torch

start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
start.record()
x = torch.ones(64, 64, device="mps") @ torch.ones(64, 64, device="mps")
end.record()
end.synchronize()
assert start.elapsed_time(end) >= 0
assert x.mean().item() == 64.0
