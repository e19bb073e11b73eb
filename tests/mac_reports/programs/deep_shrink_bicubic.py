import torch

latent = torch.linspace(-1, 1, 4 * 64).view(1, 4, 8, 8).half()
there = torch.nn.functional.interpolate(latent.to("mps"), scale_factor=0.5, mode="bicubic")
here = torch.nn.functional.interpolate(latent, scale_factor=0.5, mode="bicubic")
torch.testing.assert_close(there.cpu(), here, rtol=1e-2, atol=1e-2)
