import torch

x = torch.tensor([1, 2, 3], device="mps")
assert (x.max().item(), x.min().item()) == (3, 1)
