import torch

torch.manual_seed(0)
shape, rate = torch.full((2000,), 3.0, device="mps"), torch.full((2000,), 0.5, device="mps")
rates = torch.distributions.Gamma(shape, rate).sample()
counts = torch.distributions.Poisson(rates).sample()
assert counts.device.type == "mps"
assert abs(counts.mean().item() - 6.0) < 0.6
