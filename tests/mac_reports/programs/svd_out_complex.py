import torch

torch.manual_seed(0)
matrix = torch.randn(4, 4, dtype=torch.complex64, device="mps")
u, v = (torch.empty(0, dtype=torch.complex64, device="mps") for _ in range(2))
s = torch.empty(0, device="mps")
torch.svd(matrix, out=(u, s, v))
torch.testing.assert_close(s.cpu(), torch.linalg.svdvals(matrix.cpu()), rtol=1e-4, atol=1e-4)
