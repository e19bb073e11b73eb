import torch

mask = torch.tensor([[0, 1, 1, 1], [1, 1, 0, 1]], device="mps")
assert mask.cumsum(-1).tolist() == [[0, 1, 2, 3], [1, 2, 2, 3]]
