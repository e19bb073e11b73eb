import torch

x = torch.arange(4.0, device="mps").view(2, 2)
with torch.autocast("mps", dtype=torch.float32):
    y = x @ x
torch.testing.assert_close(y.cpu(), x.cpu() @ x.cpu())
