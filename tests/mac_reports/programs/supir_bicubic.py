import torch

image = torch.linspace(0, 1, 48).view(1, 3, 4, 4)
there = torch.nn.functional.interpolate(image.to("mps"), scale_factor=2, mode="bicubic")
torch.testing.assert_close(there.cpu(), torch.nn.functional.interpolate(image, scale_factor=2, mode="bicubic"))
