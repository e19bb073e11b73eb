import torch

matrix = torch.randn(6, 6, device="mps")
symmetric = matrix + matrix.T
for _ in range(3):
    values = torch.linalg.eigvalsh(symmetric)
torch.testing.assert_close(values.cpu(), torch.linalg.eigvalsh(symmetric.cpu()), rtol=1e-4, atol=1e-4)
