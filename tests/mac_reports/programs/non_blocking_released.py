import torch

moved = []
for index in range(3):
    batch = torch.full((1,), float(index))
    moved.append(batch.to("mps", non_blocking=True))
assert torch.cat(moved).cpu().tolist() == [0.0, 1.0, 2.0]
