import torch

pinned = torch.arange(4.0).view(2, 2).pin_memory("mps")
torch.testing.assert_close(pinned.to("mps", non_blocking=True).cpu(), torch.arange(4.0).view(2, 2))
