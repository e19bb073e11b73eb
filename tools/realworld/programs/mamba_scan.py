"""A model that imports causal_conv1d and mamba_ssm's scans at its top, as vision models on Mamba do, trained."""

import json

import torch
from causal_conv1d import causal_conv1d_fn
from mamba_ssm.ops.selective_scan_interface import mamba_inner_fn, selective_scan_fn
from torch import nn


class Mixer(nn.Module):
    def __init__(self, size, state, fused):
        super().__init__()
        self.fused, self.state = fused, state
        self.enter, self.leave = nn.Linear(size, 2 * size, bias=False), nn.Linear(size, size, bias=False)
        self.conv = nn.Conv1d(size, size, 4, groups=size)
        self.parts, self.delta = nn.Linear(size, 2 + 2 * state, bias=False), nn.Linear(2, size)
        self.a_log = nn.Parameter(torch.arange(1, state + 1).float().log().repeat(size, 1))
        self.skip = nn.Parameter(torch.ones(size))

    def forward(self, x):
        xz = self.enter(x).transpose(1, 2)
        a, weight = -torch.exp(self.a_log), self.conv.weight
        if self.fused:
            projections = self.parts.weight, self.delta.weight, self.leave.weight, None
            return mamba_inner_fn(
                xz, weight, self.conv.bias, *projections, a, None, None, self.skip, delta_bias=self.delta.bias
            )
        x, z = xz.chunk(2, dim=1)
        x = causal_conv1d_fn(x.contiguous(), weight.squeeze(1), self.conv.bias, activation="silu")
        delta, b, c = self.parts(x.transpose(1, 2)).transpose(1, 2).split((2, self.state, self.state), dim=1)
        delta = self.delta.weight @ delta
        y = selective_scan_fn(x, delta, a, b, c, self.skip, z, self.delta.bias, delta_softplus=True)
        return self.leave(y.transpose(1, 2))


torch.manual_seed(0)
model = nn.Sequential(Mixer(16, 4, False), nn.LayerNorm(16), Mixer(16, 4, True)).to("cuda")
x = torch.randn(2, 70, 16, generator=torch.Generator().manual_seed(1)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
values = []
for _ in range(4):
    loss = (model(x) - x.roll(1, dims=1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    values.append(loss.item())
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": len(values), "devices": devices, "values": values}))
