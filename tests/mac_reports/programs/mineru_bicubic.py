import torch

table = torch.linspace(-2, 2, 4 * 8).view(1, 4, 1, 8)
options = {"size": (1, 15), "mode": "bicubic"}
there = torch.nn.functional.interpolate(table.to("mps"), **options)
torch.testing.assert_close(there.cpu(), torch.nn.functional.interpolate(table, **options))
