import torch

torch.manual_seed(0)
shape = torch.full((500,), 3.0, device="mps", requires_grad=True)
sample = torch.distributions.Gamma(shape, torch.ones_like(shape)).rsample()
sample.sum().backward()
assert torch.isfinite(shape.grad).all()
assert abs(sample.mean().item() - 3.0) < 0.5
