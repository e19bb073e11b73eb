import torch

device = torch.device("mps")
state = torch.randn(10, 10, dtype=torch.complex64, device=device)
norm = torch.linalg.norm(state, dim=-1)
torch.testing.assert_close(norm.cpu(), torch.linalg.norm(state.cpu(), dim=-1))
