import numpy
import torch

data = torch.tensor(numpy.linspace(0.0, 1.0, 5)).to("mps")
torch.testing.assert_close(data.cpu().float(), torch.linspace(0, 1, 5))
