import torch

x = torch.ones(1, 32769, 8, device="mps").transpose(1, 0)
out = torch.nn.functional.linear(x, torch.ones(4, 8, device="mps"), torch.zeros(4, device="mps"))
assert out.shape == (32769, 1, 4)
assert out.min().item() == out.max().item() == 8.0
