import torch

skew = torch.tensor([[0.0, -0.5], [0.5, 0.0]])
torch.testing.assert_close(torch.linalg.matrix_exp(skew.to("mps")).cpu(), torch.linalg.matrix_exp(skew))
