import torch

images = torch.arange(4.0 * 2 * 40 * 40).view(4, 2, 40, 40)
there = torch.nn.functional.unfold(images.to("mps"), kernel_size=3, padding=1)
torch.testing.assert_close(there.cpu(), torch.nn.functional.unfold(images, kernel_size=3, padding=1))
