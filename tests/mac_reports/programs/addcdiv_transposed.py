import torch

x, y, z = torch.rand(2, 3).t(), torch.rand(2, 3).t(), torch.rand(3, 2) + 1
there = x.to("mps")
there.addcdiv_(y.to("mps"), z.to("mps"))
torch.testing.assert_close(there.cpu(), x.clone().addcdiv_(y, z))
