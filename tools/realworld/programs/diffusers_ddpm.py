"""DDPMPipeline: the training loop of the diffusers tutorial with Accelerator, then pictures from a seeded generator."""

import json

import torch
from accelerate import Accelerator
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=16,
    in_channels=3,
    out_channels=3,
    layers_per_block=1,
    block_out_channels=(16, 32),
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    norm_num_groups=8,
)
scheduler = DDPMScheduler(num_train_timesteps=20)
pictures = torch.rand(16, 3, 16, 16) * 2 - 1
loader = torch.utils.data.DataLoader(pictures, batch_size=4)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3)
schedule = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=1, num_training_steps=8)
accelerator = Accelerator(mixed_precision="fp16")
model, optimizer, loader, schedule = accelerator.prepare(unet, optimizer, loader, schedule)
losses = []
for epoch in range(2):
    for step, clean in enumerate(loader):
        noise = torch.randn(clean.shape, device=clean.device, generator=torch.Generator(clean.device).manual_seed(step))
        times = torch.arange(len(clean), device=clean.device, dtype=torch.int64) * 4
        noisy = scheduler.add_noise(clean, noise, times)
        with accelerator.accumulate(model):
            guess = model(noisy, times, return_dict=False)[0]
            loss = torch.nn.functional.mse_loss(guess, noise)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.detach().item())

pipeline = DDPMPipeline(unet=accelerator.unwrap_model(model, keep_fp32_wrapper=False), scheduler=scheduler).to("cuda")
pipeline.set_progress_bar_config(disable=True)
made = pipeline(batch_size=2, generator=torch.Generator("cuda").manual_seed(0), num_inference_steps=3, output_type="np")
pipeline.save_pretrained("ddpm")
again = DDPMPipeline.from_pretrained("ddpm").to("cuda")
again.set_progress_bar_config(disable=True)
second = again(batch_size=1, generator=torch.manual_seed(0), num_inference_steps=3).images[0]
values = losses + made.images[:, ::8, ::8].flatten().tolist() + [sum(second.getpixel((4, 4))) / 765]
devices = sorted({str(p.device) for p in again.unet.parameters()})
print("RESULT", json.dumps({"steps": len(losses), "devices": devices, "values": values}))
