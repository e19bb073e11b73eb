"""An ordinary CUDA training script without code for other devices.

python examples/train_cuda.py                  needs an NVIDIA GPU
python -m torchdevice examples/train_cuda.py   runs on the available device
"""

import time

import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, TensorDataset

assert torch.cuda.is_available(), "this script needs CUDA"
torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = True
torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
torch.cuda.set_device(0)

properties = torch.cuda.get_device_properties(torch.cuda.current_device())
print(f"{torch.cuda.device_count()} device: {properties.name}, {properties.multi_processor_count} processors, ", end="")
print(f"{properties.total_memory / 2**30:.1f} GiB, capability {properties.major}.{properties.minor}")

# Points in 32 dimensions, labelled by a hidden linear rule.
points = torch.randn(2048, 32)
labels = (points @ torch.randn(32, 8)).argmax(1)
loader = DataLoader(TensorDataset(points, labels), batch_size=256, shuffle=True, pin_memory=True, num_workers=2)

model = nn.Sequential(nn.Linear(32, 128), nn.LayerNorm(128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 8)).cuda()
model = nn.DataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scaler = GradScaler()
criterion = nn.CrossEntropyLoss().cuda()
copies = torch.cuda.Stream()

torch.cuda.reset_peak_memory_stats()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
began = time.time()
losses = []
for epoch in range(5):
    total = torch.zeros((), device="cuda")
    start.record()
    for batch, target in loader:
        with torch.cuda.stream(copies):
            batch = batch.cuda(non_blocking=True)
            target = target.cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(copies)
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = criterion(model(batch), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        total += loss.detach()
    end.record()
    torch.cuda.synchronize()
    losses.append(total.item() / len(loader))
    print(f"epoch {epoch}: loss {losses[-1]:.4f}, {start.elapsed_time(end):.0f} ms, ", end="")
    held, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    print(f"memory {held / 2**20:.1f} MiB, peak {peak / 2**20:.1f} MiB")

# Inference of one fixed batch as a CUDA graph: new inputs are copied into the same tensor.
model.eval()
static = torch.zeros(256, 32, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(graph):
    scores = model.module(static)
right = 0
for first in range(0, 2048, 256):
    static.copy_(points[first : first + 256])
    graph.replay()
    right += (scores.argmax(1) == labels[first : first + 256].cuda()).sum().item()
torch.cuda.empty_cache()
free, memory = torch.cuda.mem_get_info()
print(
    f"accuracy {right / 2048:.3f} in {time.time() - began:.1f} s, {free / 2**30:.1f} of {memory / 2**30:.1f} GiB free"
)
assert losses[-1] < losses[0] / 1.5, f"the loss did not fall: {losses}"
