import torch

matrix = torch.tensor([[1 + 1j, 2.0], [0.5j, 3.0]], dtype=torch.complex64)
torch.testing.assert_close(torch.linalg.det(matrix.to("mps")).cpu(), torch.linalg.det(matrix))
