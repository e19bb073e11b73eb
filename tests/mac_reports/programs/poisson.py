import torch

torch.manual_seed(0)
rates = torch.full((2000,), 4.0, device="mps")
counts = torch.poisson(rates)
assert abs(counts.mean().item() - 4.0) < 0.3
