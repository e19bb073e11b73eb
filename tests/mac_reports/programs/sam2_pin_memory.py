import torch

positions = torch.tensor([1, 2, 5]).pin_memory().to(device="mps", non_blocking=True)
assert positions.tolist() == [1, 2, 5]
