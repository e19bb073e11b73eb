import torch

tokens, ends = torch.tensor([5, 128001, 7, 128009], device="mps"), torch.tensor([128001, 128009], device="mps")
assert torch.isin(tokens, ends).tolist() == [False, True, False, True]
