import torch

ones = torch.tensor([1, 1, 1, 1], device="mps")
for dtype in (None, torch.int32, torch.int16, torch.int8):
    assert ones.cumsum(0, dtype=dtype).tolist() == [1, 2, 3, 4]
