import numpy
import torch

observation = {"position": numpy.array([0.1, 0.2]), "velocity": numpy.array([1.0])}
tensors = {key: torch.as_tensor(each).to("mps") for key, each in observation.items()}
torch.testing.assert_close(tensors["position"].cpu().double(), torch.tensor([0.1, 0.2]).double(), rtol=1e-6, atol=1e-6)
