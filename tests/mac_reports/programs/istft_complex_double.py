import torch

torch.manual_seed(0)
magnitude, phase = torch.rand(8, 8), torch.rand(8, 8)
there, angle = magnitude.to("mps"), phase.to("mps")
found = there * (torch.cos(angle) + 1j * torch.sin(angle))
torch.testing.assert_close(found.cpu(), torch.polar(magnitude, phase), rtol=1e-5, atol=1e-5)
