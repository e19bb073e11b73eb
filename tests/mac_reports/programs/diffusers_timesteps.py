import numpy
import torch

steps = numpy.linspace(0, 999, 5)[::-1].copy()
timesteps = torch.from_numpy(steps).to(device="mps")
torch.testing.assert_close(timesteps.cpu().double(), torch.from_numpy(steps), rtol=1e-6, atol=0)
