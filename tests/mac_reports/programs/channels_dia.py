import torch

sound = torch.linspace(-1, 1, 70000).view(1, 1, -1)
kernel = torch.tensor([[[0.25, 0.5, 0.25]]])
there = torch.nn.functional.conv1d(sound.to("mps"), kernel.to("mps"))
torch.testing.assert_close(there.cpu(), torch.nn.functional.conv1d(sound, kernel))
