import torch

face = torch.arange(3.0 * 37 * 29).view(1, 3, 37, 29)
resized = torch.nn.functional.interpolate(face.to("mps"), size=(24, 24), mode="area")
torch.testing.assert_close(resized.cpu(), torch.nn.functional.interpolate(face, size=(24, 24), mode="area"))
