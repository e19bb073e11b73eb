import torch

torch.manual_seed(0)
draws = torch.distributions.Binomial(10, torch.full((2000,), 0.3, device="mps")).sample()
assert abs(draws.mean().item() - 3.0) < 0.3
