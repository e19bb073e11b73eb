"""Fabric(accelerator="cuda", precision="bf16-mixed"): setup, backward, clipping, save and load."""

import json

import torch
from lightning.fabric import Fabric, seed_everything
from torch.utils.data import DataLoader, TensorDataset

seed_everything(0, verbose=False)
fabric = Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")
fabric.launch()
inputs = torch.randn(32, 8)
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8))
with fabric.init_module():
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer = fabric.setup(model, optimizer)
losses = []
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        losses.append(fabric.all_reduce(loss.detach()).item())
state = {"model": model, "optimizer": optimizer, "epoch": 2}
fabric.save("fabric.ckpt", state)
remainder = fabric.load("fabric.ckpt", state)
with torch.no_grad():
    losses.append(model(fabric.to_device(torch.ones(2, 8))).float().sum().item())
devices = sorted({str(fabric.device), *(str(p.device) for p in model.parameters())})
print("RESULT", json.dumps({"steps": len(losses) - 1, "devices": devices, "values": losses}))
