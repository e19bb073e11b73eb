"""A loop that meets OutOfMemoryError and halves its batch, both as a class and as the text "out of memory"."""

import gc
import json

import numpy as np
import torch
from torch import nn

rng = np.random.RandomState(0)
torch.manual_seed(0)
inputs = torch.from_numpy(rng.randn(128, 1024).astype(np.float32))
targets = torch.from_numpy(rng.randn(128, 1).astype(np.float32))
model = nn.Sequential(nn.Linear(1024, 16), nn.Tanh(), nn.Linear(16, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.cuda.reset_peak_memory_stats()


def find_batch_size(batch_size):
    """As accelerate's find_executable_batch_size does it: by the class."""
    failures = 0
    while True:
        try:
            staging = torch.empty(batch_size, 1024, device="cuda")
            staging[:128].copy_(inputs)
            return batch_size, failures, model(staging[:128]).sum().item()
        except torch.cuda.OutOfMemoryError:
            failures += 1
            gc.collect()
            torch.cuda.empty_cache()
            batch_size //= 2


def train_step(size, workspace):
    scratch = torch.empty(workspace, device="cuda")
    scratch[: size * 16] = 0
    batch, target = inputs[:size].cuda(), targets[:size].cuda()
    loss = nn.functional.mse_loss(model(batch), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def is_out_of_memory(exception):
    """As fairseq and many trainers do it: by the words."""
    return isinstance(exception, RuntimeError) and "out of memory" in str(exception)


batch_size, failures, probe = find_batch_size(1 << 40)
assert failures > 0, "2**52 bytes fit nowhere"
print(f"{failures} times out of memory, then a batch of {batch_size}")

losses, ooms, workspace = [], 0, 1 << 46
while len(losses) < 12:
    try:
        losses.append(train_step(32, workspace))
    except RuntimeError as e:
        if not is_out_of_memory(e):
            raise
        ooms += 1
        for parameter in model.parameters():
            parameter.grad = None
        torch.cuda.empty_cache()
        workspace //= 2**14
assert ooms > 0
peak = torch.cuda.max_memory_allocated() / 2**20
print(f"{ooms} more, loss {losses[0]:.4f} -> {losses[-1]:.4f}, peak {peak:.0f} MiB")
devices = sorted({str(parameter.device) for parameter in model.parameters()})
print("RESULT", json.dumps({"steps": len(losses), "devices": devices, "values": [probe, *losses]}))
