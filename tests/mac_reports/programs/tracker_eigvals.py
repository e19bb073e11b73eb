import torch

rotation = torch.tensor([[0.0, -1.0], [1.0, 0.0]], device="mps")
values = torch.linalg.eigvals(rotation)
torch.testing.assert_close(values.imag.sort().values.cpu(), torch.tensor([-1.0, 1.0]))
