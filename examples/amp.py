"""Mixed precision in CUDA code: autocast in float16 and a GradScaler.

torchdevice run examples/amp.py
"""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cuda")
x = torch.randn(256, 16, device="cuda")
y = x.sum(1, keepdim=True)

losses = []
for _ in range(40):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        prediction = model(x)
        loss = nn.functional.mse_loss(prediction, y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())

print(f"computed in {prediction.dtype}, weights in {model[0].weight.dtype}, loss scale {scaler.get_scale():.0f}")
print("the loss fell to a tenth:", losses[-1] < losses[0] / 10)
