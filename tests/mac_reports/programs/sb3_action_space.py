import numpy
import torch

low = torch.tensor(numpy.array([-1.0, -2.0]), device="mps")
action = torch.clamp(torch.tensor([-5.0, 0.5], device="mps"), min=low)
assert action.cpu().tolist() == [-1.0, 0.5]
