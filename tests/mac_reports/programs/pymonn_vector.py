import torch

vector = torch.full((4,), 0.7, dtype=torch.float64, device="mps")
torch.testing.assert_close(vector.cpu().double(), torch.full((4,), 0.7, dtype=torch.float64), rtol=1e-6, atol=0)
