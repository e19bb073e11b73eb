import torch

mask = torch.tensor([[False, False, True, True], [True, True, True, True]], device="mps").t()
filled = torch.zeros_like(mask, dtype=torch.float32).masked_fill_(mask, 1.0)
torch.testing.assert_close(filled.cpu(), mask.cpu().float())
