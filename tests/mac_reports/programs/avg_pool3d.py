import torch

volume = torch.arange(64.0).view(1, 1, 4, 4, 4)
pool = torch.nn.AvgPool3d(2)
torch.testing.assert_close(pool(volume.to("mps")).cpu(), pool(volume))
