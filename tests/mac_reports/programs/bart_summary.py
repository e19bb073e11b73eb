import torch

tokens = torch.tensor([[0, 9, 8, 1, 1]], device="mps")
mask = tokens.ne(1).int()
positions = (torch.cumsum(mask, dim=1).type_as(mask) * mask).long() + 1
assert positions.tolist() == [[2, 3, 4, 1, 1]]
