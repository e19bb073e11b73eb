import torch

matrix = torch.tensor([[2.0, 1.0], [0.0, 3.0]], device="mps")
values, vectors = torch.linalg.eig(matrix)
again = (vectors @ torch.diag(values) @ torch.linalg.inv(vectors)).real
torch.testing.assert_close(again.cpu(), matrix.cpu())
