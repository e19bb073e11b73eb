import torch

scale = torch.arange(0, 8, 2, dtype=torch.float64, device="mps") / 8
angles = torch.outer(torch.arange(4, device="mps"), 1.0 / 10000**scale)
table = torch.stack([angles.cos(), angles.sin()]).float()
wanted = torch.outer(torch.arange(4), 1.0 / 10000 ** (torch.arange(0, 8, 2, dtype=torch.float64) / 8))
torch.testing.assert_close(table.cpu(), torch.stack([wanted.cos(), wanted.sin()]).float(), rtol=1e-5, atol=1e-5)
