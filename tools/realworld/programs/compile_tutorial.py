"""The torch.compile tutorial: compiled training and evaluation timed by CUDA events, fullgraph, reduce-overhead."""

import json

import numpy as np
import torch
from torch import nn

torch.set_float32_matmul_precision("high")
torch.manual_seed(0)
rng = np.random.RandomState(0)


# Returns the result of running `fn()` and the time it took for `fn()` to run, in seconds.
def timed(fn):
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    result = fn()
    end.record()
    torch.cuda.synchronize()
    return result, start.elapsed_time(end) / 1000


def generate_data(b):
    return (
        torch.from_numpy(rng.randn(b, 32)).to(torch.float32).cuda(),
        torch.from_numpy(rng.randint(0, 4, b)).cuda(),
    )


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.norm = nn.LayerNorm(64)
        self.last = nn.Linear(64, 4)

    def forward(self, x):
        positions = torch.arange(x.shape[1], device="cuda")
        x = x + torch.sin(positions / 10).to(x.dtype)
        return self.last(torch.nn.functional.gelu(self.norm(self.first(x))))


model = Model().to(torch.float32).cuda()
opt = torch.optim.Adam(model.parameters())


def train(mod, data):
    opt.zero_grad(True)
    pred = mod(data[0])
    loss = torch.nn.CrossEntropyLoss()(pred, data[1])
    loss.backward()
    opt.step()
    return loss.item()


train_opt = torch.compile(train, mode="reduce-overhead")
losses = []
for i in range(6):
    loss, seconds = timed(lambda: train_opt(model, generate_data(16)))
    losses.append(loss)
    print(f"compiled train time {i}: {seconds}")

model.eval()
evaluate = torch.compile(model, fullgraph=True)
with torch.no_grad():
    x, _ = generate_data(16)
    eager, compiled = model(x), evaluate(x)
assert torch.allclose(eager, compiled, atol=1e-5)


@torch.compile(fullgraph=True, dynamic=True)
def foo(x, y):
    a = torch.sin(x)
    b = torch.cos(y) + torch.zeros(x.shape[0], 1, device="cuda")
    return a + b


values = [foo(torch.full((n, 4), 0.5).cuda(), torch.full((n, 4), 0.25).cuda()).sum().item() for n in (2, 5, 7)]
devices = sorted({str(parameter.device) for parameter in model.parameters()})
values += [*losses, *compiled.cpu().flatten().tolist()[:8]]
print("RESULT", json.dumps({"steps": len(losses), "devices": devices, "values": values}))
