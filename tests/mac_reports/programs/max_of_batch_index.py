import torch

batch = torch.Tensor([0, 1, 2, 3, 4]).long().to("mps")
assert int(batch.max()) + 1 == 5
