import numpy
import torch

points = torch.as_tensor(numpy.array([[12.5, 40.25]]), device=torch.device("mps"))
shifted = points + torch.tensor([[10, 20]], device=points.device)
torch.testing.assert_close(shifted.cpu().float(), torch.tensor([[22.5, 60.25]]))
