import torch

torch.manual_seed(0)
matrix = torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0, 0.5])).to("mps")
values, _ = torch.lobpcg(matrix, k=1, niter=100)
torch.testing.assert_close(values.cpu(), torch.tensor([4.0]), rtol=1e-3, atol=1e-3)
