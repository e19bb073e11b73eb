import torch

matrix, right = torch.tensor([[3.0, 1.0], [1.0, 2.0]], device="mps"), torch.tensor([[9.0], [8.0]], device="mps")
factors, pivots = torch.linalg.lu_factor(matrix)
solved = torch.linalg.lu_solve(factors, pivots, right)
torch.testing.assert_close(solved.cpu(), torch.tensor([[2.0], [3.0]]), rtol=1e-5, atol=1e-5)
