import torch

positions = torch.linspace(-1, 1, 9 * 6).view(1, 3, 3, 6).permute(0, 3, 1, 2)
options = {"size": (5, 4), "mode": "bicubic", "align_corners": False}
there = torch.nn.functional.interpolate(positions.to("mps"), **options).permute(0, 2, 3, 1)
here = torch.nn.functional.interpolate(positions, **options).permute(0, 2, 3, 1)
torch.testing.assert_close(there.cpu(), here)
