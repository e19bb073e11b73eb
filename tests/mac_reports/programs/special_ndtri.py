import torch

shares = torch.tensor([0.1, 0.5, 0.9])
torch.testing.assert_close(torch.special.ndtri(shares.to("mps")).cpu(), torch.special.ndtri(shares))
torch.manual_seed(0)
assert torch.isfinite(torch.distributions.Cauchy(torch.zeros(9, device="mps"), 1.0).sample()).all()
