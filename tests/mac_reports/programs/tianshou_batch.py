import torch

batch = torch.tensor([0.25, 0.5], dtype=torch.float64)
torch.testing.assert_close(batch.to("mps").cpu().double(), batch)
