"""Whole-network capture from the CUDA graph notes, partial capture by make_graphed_callables, two graphs of a pool."""

import json
from itertools import chain

import numpy as np
import torch

N, D_in, H, D_out = 64, 128, 64, 16
rng = np.random.RandomState(0)
torch.manual_seed(0)


def draw(count):
    inputs = [torch.from_numpy(rng.randn(N, D_in).astype(np.float32)).cuda() for _ in range(count)]
    targets = [torch.from_numpy(rng.randn(N, D_out).astype(np.float32)).cuda() for _ in range(count)]
    return inputs, targets


# Whole-network capture
model = torch.nn.Sequential(torch.nn.Linear(D_in, H), torch.nn.ReLU(), torch.nn.Linear(H, D_out)).cuda()
loss_fn = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

# Placeholders used for capture
static_input = torch.zeros(N, D_in, device="cuda")
static_target = torch.zeros(N, D_out, device="cuda")

# warmup
s = torch.cuda.Stream()
s.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(s):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        y_pred = model(static_input)
        loss = loss_fn(y_pred, static_target)
        loss.backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(s)

# capture: sets grads to None before capture, so backward() will create .grad attributes with the graph's private pool
g = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(g):
    static_y_pred = model(static_input)
    static_loss = loss_fn(static_y_pred, static_target)
    static_loss.backward()
    optimizer.step()

losses = []
for data, target in zip(*draw(8), strict=True):
    # Fills the graph's input memory with new data to compute on
    static_input.copy_(data)
    static_target.copy_(target)
    # replay() includes forward, backward, and step
    g.replay()
    losses.append(static_loss.item())

# Partial-network capture: the middle depends on the data
module1 = torch.nn.Linear(D_in, H).cuda()
module2 = torch.nn.Linear(H, D_out).cuda()
module3 = torch.nn.Linear(H, D_out).cuda()
optimizer = torch.optim.SGD(chain(module1.parameters(), module2.parameters(), module3.parameters()), lr=0.1)

x = torch.zeros(N, D_in, device="cuda")
h = torch.zeros(N, H, device="cuda", requires_grad=True)
module1 = torch.cuda.make_graphed_callables(module1, (x,))
module2 = torch.cuda.make_graphed_callables(module2, (h,))
module3 = torch.cuda.make_graphed_callables(module3, (h,))

for data, target in zip(*draw(8), strict=True):
    optimizer.zero_grad(set_to_none=True)
    tmp = module1(data)
    tmp = module2(tmp) if tmp.sum().item() > 0 else module3(tmp)
    loss = loss_fn(tmp, target)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

# Two graphs that share a pool
g1, g2 = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
static_in_1 = torch.zeros(4, device="cuda")
with torch.cuda.graph(g1):
    static_out_1 = static_in_1 * 2 + 1
with torch.cuda.graph(g2, pool=g1.pool()):
    static_out_2 = static_out_1.square()
static_in_1.copy_(torch.arange(4.0))
g1.replay()
g2.replay()
losses += static_out_2.tolist()

torch.cuda.synchronize()
print(f"captured: loss {losses[0]:.4f} -> {losses[7]:.4f}")
devices = sorted({str(parameter.device) for parameter in model.parameters()})
print("RESULT", json.dumps({"steps": 16, "devices": devices, "values": losses}))
