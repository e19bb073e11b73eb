"""A model on flash-linear-attention's Triton kernels: gated linear attention and the delta rule, trained."""

import json

import torch
from fla.ops.delta_rule import fused_recurrent_delta_rule
from fla.ops.gla import chunk_gla
from torch import nn


class Attention(nn.Module):
    def __init__(self, size, heads, delta):
        super().__init__()
        self.shape, self.delta = (heads, size // heads), delta
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.gate = nn.Linear(size, heads if delta else size)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, self.shape) for part in self.qkv(x).chunk(3, dim=-1))
        if self.delta:
            k = nn.functional.normalize(k, dim=-1)
            y, _ = fused_recurrent_delta_rule(q, k, v, self.gate(x).sigmoid())
        else:
            y, _ = chunk_gla(q, k, v, nn.functional.logsigmoid(self.gate(x)).unflatten(-1, self.shape) / 16)
        return self.out(y.flatten(-2))


torch.manual_seed(0)
model = nn.Sequential(Attention(32, 2, False), nn.LayerNorm(32), Attention(32, 2, True)).to("cuda")
x = torch.randn(1, 70, 32, generator=torch.Generator().manual_seed(1)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
values = []
for _ in range(2):
    loss = (model(x) - x.roll(1, dims=1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    values.append(loss.item())
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": len(values), "devices": devices, "values": values}))
