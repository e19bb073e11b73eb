import numpy
import torch

scaled = numpy.array([[1.0, 2.0], [3.0, 4.0]]) * (1024 / 500.0)
there = torch.as_tensor(scaled, dtype=torch.float64, device="mps")[:, None, :]
torch.testing.assert_close(there[:, 0].cpu().double(), torch.from_numpy(scaled), rtol=1e-6, atol=1e-6)
