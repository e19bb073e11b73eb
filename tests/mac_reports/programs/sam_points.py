import numpy
import torch

points = numpy.stack(numpy.meshgrid(numpy.linspace(0, 1, 3), numpy.linspace(0, 1, 3)), axis=-1).reshape(-1, 2)
there = torch.as_tensor(points * 1024, device="mps")
labels = torch.ones(there.shape[0], dtype=torch.int, device=there.device)
torch.testing.assert_close(there.cpu().double(), torch.from_numpy(points * 1024))
assert labels.sum().item() == 9
