import torch

image, kernel = torch.rand(2, 3, 16, 16), torch.rand(1, 1, 3, 11)
there = torch.nn.functional.conv2d(image.to("mps"), kernel.to("mps").expand(-1, 3, -1, -1))
torch.testing.assert_close(there.cpu(), torch.nn.functional.conv2d(image, kernel.expand(-1, 3, -1, -1)))
