import torch

torch.manual_seed(0)
weights = torch.ones(100, 4, device="mps", requires_grad=True)
sample = torch.distributions.Dirichlet(weights).rsample()
torch.testing.assert_close(sample.sum(1).cpu(), torch.ones(100))
sample.square().sum().backward()
assert torch.isfinite(weights.grad).all()
