import torch

matrix = torch.tensor([[1.0, 2.0], [2.0, 4.0], [0.0, 1.0]])
torch.testing.assert_close(torch.linalg.pinv(matrix.to("mps")).cpu(), torch.linalg.pinv(matrix), rtol=1e-4, atol=1e-4)
assert torch.linalg.matrix_rank(matrix.to("mps")).item() == 2
