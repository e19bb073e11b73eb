import torch

whole = torch.ones(12, device="mps")
a, b = whole[:6].view(1, 2, 3), whole[6:].view(1, 3, 2)
out = torch.baddbmm(torch.zeros(1, 2, 2, device="mps"), a, b)
torch.testing.assert_close(out.cpu(), torch.full((1, 2, 2), 3.0))
