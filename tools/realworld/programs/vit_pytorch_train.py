"""vit-pytorch: ViT trained on the GPU with mixed precision, SimpleViT and DeepViT beside it."""

import json

import numpy as np
import torch
from torch import nn
from vit_pytorch import ViT
from vit_pytorch.deepvit import DeepViT
from vit_pytorch.simple_vit import SimpleViT

torch.manual_seed(42)
torch.cuda.manual_seed_all(42)
device = "cuda"
rng = np.random.RandomState(0)
sizes = dict(image_size=32, patch_size=8, num_classes=4, dim=32, depth=2, heads=2, mlp_dim=64)
v = ViT(**sizes, dropout=0.0, emb_dropout=0.0).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(v.parameters(), lr=3e-3)
scaler = torch.cuda.amp.GradScaler()
losses = []
for _ in range(6):
    data = torch.from_numpy(rng.rand(8, 3, 32, 32).astype(np.float32)).to(device)
    label = torch.from_numpy(rng.randint(0, 4, 8)).to(device)
    with torch.autocast(device_type="cuda", dtype=torch.float16):
        loss = criterion(v(data), label)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
    accuracy = (v(data).argmax(dim=1) == label).float().mean()

simple = SimpleViT(**sizes).cuda().eval()
images = torch.from_numpy(rng.rand(2, 3, 32, 32).astype(np.float32)).cuda()
with torch.no_grad():
    values = simple(images).flatten().tolist()
deep = DeepViT(**sizes).cuda().eval()
loss = criterion(deep(images), torch.tensor([1, 2], device=device))
loss.backward()
values.append(loss.item())
print(f"accuracy {accuracy.item():.2f}, loss {loss.item():.4f}")
devices = sorted({str(parameter.device) for model in (v, simple, deep) for parameter in model.parameters()})
print("RESULT", json.dumps({"steps": len(losses) + 1, "devices": devices, "values": losses + values}))
