import torch

matrix = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]], device="mps")
q, r = torch.linalg.qr(matrix)
torch.testing.assert_close((q @ r).cpu(), matrix.cpu())
torch.testing.assert_close((q.T @ q).cpu(), torch.eye(2), rtol=1e-5, atol=1e-5)
