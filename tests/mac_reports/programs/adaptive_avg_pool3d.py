import torch

volume = torch.arange(125.0).view(1, 1, 5, 5, 5)
pool = torch.nn.AdaptiveAvgPool3d(2)
torch.testing.assert_close(pool(volume.to("mps")).cpu(), pool(volume))
