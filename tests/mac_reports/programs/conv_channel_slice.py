import torch

torch.manual_seed(0)
shared = torch.randn(1, 2, 1, 2).contiguous(memory_format=torch.channels_last)
weight = torch.randn(1, 1, 1, 1)
there = torch.nn.functional.conv2d(shared.to("mps")[:, :1], weight.to("mps"))
torch.testing.assert_close(there.cpu(), torch.nn.functional.conv2d(shared[:, :1], weight))
