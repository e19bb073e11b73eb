import torch

torch.manual_seed(0)
matrix = torch.randn(2, 20, 10).permute(0, 2, 1)
there = matrix.to("mps")
found = torch.topk(there, k=2, dim=2)
placed = torch.zeros_like(there).scatter_(2, found.indices, found.values)
assert torch.count_nonzero(placed).item() == 2 * 10 * 2
