import torch

device = torch.device("mps")
latents = torch.ones(1, 2, 4, 4, device=device)
with torch.autocast(device.type, dtype=torch.float16, enabled=True):
    product = latents @ latents
assert product.dtype == torch.float16
assert product.float().mean().item() == 4.0
