import torch

matrix, right = torch.tensor([[3.0, 1.0], [1.0, 2.0]]), torch.tensor([9.0, 8.0])
there = torch.linalg.solve(matrix.to("mps"), right.to("mps"))
torch.testing.assert_close(there.cpu(), torch.linalg.solve(matrix, right))
