import torch

torch.manual_seed(0)
conv = torch.nn.Conv3d(1, 2, 3)
volume = torch.linspace(0, 1, 125).view(1, 1, 5, 5, 5)
expected = conv(volume)
torch.testing.assert_close(conv.to("mps")(volume.to("mps")).cpu(), expected)
