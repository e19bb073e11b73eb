import torch

image = torch.linspace(0, 1, 3 * 256).view(1, 3, 16, 16)
options = {"size": (6, 6), "mode": "bilinear", "antialias": True}
there = torch.nn.functional.interpolate(image.to("mps"), **options)
torch.testing.assert_close(there.cpu(), torch.nn.functional.interpolate(image, **options))
