import torch

volume = torch.arange(27.0).view(1, 1, 3, 3, 3)
grid = torch.linspace(-1, 1, 24).view(1, 2, 2, 2, 3)
there = torch.nn.functional.grid_sample(volume.to("mps"), grid.to("mps"), align_corners=False)
torch.testing.assert_close(there.cpu(), torch.nn.functional.grid_sample(volume, grid, align_corners=False))
