import torch

table = torch.arange(12.0, device="mps").view(4, 3)
torch.testing.assert_close(table[torch.tensor([3, 0], device="mps")].cpu(), torch.tensor([[9.0, 10, 11], [0, 1, 2]]))
