"""A conditional UNet of diffusers with enable_xformers_memory_efficient_attention(), trained."""

import json

import torch
from diffusers import UNet2DConditionModel

torch.manual_seed(0)
model = UNet2DConditionModel(
    sample_size=8,
    block_out_channels=(32, 64),
    layers_per_block=1,
    down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    cross_attention_dim=16,
    attention_head_dim=8,
    norm_num_groups=8,
).to("cuda")
model.enable_xformers_memory_efficient_attention()
generator = torch.Generator().manual_seed(1)
noise = torch.randn(2, 4, 8, 8, generator=generator).to("cuda")
text = torch.randn(2, 5, 16, generator=generator).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
values = []
for step in (10, 500):
    loss = (model(noise, step, text).sample - noise).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    values.append(loss.item())
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": len(values), "devices": devices, "values": values}))
