import torch

matrix = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]], device="mps")
reflectors, scales = torch.geqrf(matrix)
q = torch.linalg.householder_product(reflectors, scales)
torch.testing.assert_close((q @ reflectors[:2].triu()).cpu(), matrix.cpu(), rtol=1e-4, atol=1e-4)
