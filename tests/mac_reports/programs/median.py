import torch

values = torch.tensor([[3.0, 1.0, 2.0], [9.0, 7.0, 8.0]], device="mps")
assert values.median().item() == 3.0
assert values.median(dim=1).values.tolist() == [2.0, 8.0]
