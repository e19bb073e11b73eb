import numpy
import torch

timesteps = torch.from_numpy(numpy.linspace(0, 999, 3, dtype=float)).to("mps")
embedding = torch.sin(timesteps[:, None].float() * torch.tensor([1.0, 0.1], device="mps"))
wanted = torch.sin(torch.tensor([0.0, 499.5, 999.0])[:, None] * torch.tensor([1.0, 0.1]))
torch.testing.assert_close(embedding.cpu(), wanted, rtol=1e-4, atol=1e-4)
