import torch

delta = torch.outer(torch.arange(1.0, 5.0), torch.arange(1.0, 7.0)).to("mps")
u, s, vh = torch.linalg.svd(delta, full_matrices=False)
low_rank = u[:, :1] * s[:1] @ vh[:1]
torch.testing.assert_close(low_rank.cpu(), delta.cpu(), rtol=1e-4, atol=1e-4)
