"""denoising-diffusion-pytorch: the README's Unet and GaussianDiffusion with .cuda(), training steps and samples."""

import json

import numpy as np
import torch
from denoising_diffusion_pytorch import GaussianDiffusion, GaussianDiffusion1D, Unet, Unet1D

torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
rng = np.random.RandomState(0)
model = Unet(dim=16, dim_mults=(1, 2), flash_attn=False).cuda()
diffusion = GaussianDiffusion(model, image_size=16, timesteps=10, sampling_timesteps=4).cuda()
optimizer = torch.optim.Adam(diffusion.parameters(), lr=1e-3)
training_images = torch.from_numpy(rng.rand(4, 3, 16, 16).astype(np.float32)).cuda()
losses = []
torch.manual_seed(1)
for _ in range(3):
    loss = diffusion(training_images)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
sampled_images = diffusion.sample(batch_size=2)
assert sampled_images.shape == (2, 3, 16, 16)
values = losses + sampled_images.flatten()[:8].cpu().tolist()

model = Unet1D(dim=8, dim_mults=(1, 2), channels=4).cuda()
diffusion = GaussianDiffusion1D(model, seq_length=32, timesteps=10, objective="pred_v").cuda()
training_seq = torch.from_numpy(rng.rand(4, 4, 32).astype(np.float32)).cuda()
loss = diffusion(training_seq)
loss.backward()
values += [loss.item(), *diffusion.sample(batch_size=1).flatten()[:4].tolist()]
devices = sorted({str(parameter.device) for parameter in diffusion.parameters()})
print("RESULT", json.dumps({"steps": 4, "devices": devices, "values": values}))
