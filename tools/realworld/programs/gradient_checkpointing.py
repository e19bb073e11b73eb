"""Activation checkpointing, reentrant or not, with dropout, under autocast, by checkpoint_sequential; RNG kept."""

import json

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

rng = np.random.RandomState(0)
data = torch.from_numpy(rng.randn(8, 16, 32).astype(np.float32)).cuda()
target = torch.from_numpy(rng.randn(8, 16, 32).astype(np.float32)).cuda()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Model(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.blocks = nn.ModuleList([Block(32) for _ in range(4)])

    def forward(self, x):
        if self.how == "sequential":
            return checkpoint_sequential(nn.Sequential(*self.blocks), 2, x, use_reentrant=False)
        for block in self.blocks:
            if self.how == "none":
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.how == "reentrant")
        return x


def train(how, autocast=False):
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    torch.cuda.reset_peak_memory_stats()
    model = Model(how).cuda().train()
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        x = data.clone().requires_grad_(True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            loss = nn.functional.mse_loss(model(x).float(), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"{how}: loss {losses[-1]:.5f}, peak {torch.cuda.max_memory_allocated() / 2**20:.2f} MiB")
    return losses, model


values, plain = [], train("none")[0]
for how in ("reentrant", "not reentrant", "sequential"):
    losses, model = train(how)
    assert np.allclose(losses, plain, atol=1e-5), (how, losses, plain)
    values += losses
values += train("not reentrant", autocast=True)[0]
state = torch.cuda.get_rng_state()
first = torch.nn.functional.dropout(torch.ones(64, device="cuda"), 0.5)
torch.cuda.set_rng_state(state)
assert torch.equal(first, torch.nn.functional.dropout(torch.ones(64, device="cuda"), 0.5))
devices = sorted({str(parameter.device) for parameter in model.parameters()})
print("RESULT", json.dumps({"steps": 15, "devices": devices, "values": values}))
