import torch

values = torch.tensor([3, 1, 3, 2, 1], device="mps")
found, counts = torch.unique(values, return_counts=True)
assert found.tolist() == [1, 2, 3]
assert counts.tolist() == [2, 1, 2]
