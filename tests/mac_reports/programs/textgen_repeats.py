import torch

tokens = torch.tensor([[5, 6], [7, 8]], device="mps")
assert tokens.repeat_interleave(torch.tensor([2, 1], device="mps"), dim=0).tolist() == [[5, 6], [5, 6], [7, 8]]
