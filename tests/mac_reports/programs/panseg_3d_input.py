import torch

conv = torch.nn.Conv2d(1, 2, 3, padding=1, bias=False).to("mps")
volume = torch.ones(1, 1, 6, 16, 16, device="mps")
slices = [conv(volume[:, :, depth]) for depth in range(volume.shape[2])]
assert torch.stack(slices, 2).shape == (1, 2, 6, 16, 16)
