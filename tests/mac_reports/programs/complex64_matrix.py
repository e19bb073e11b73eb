import torch

matrix = torch.tensor([[1 + 1j, 2], [0, 1 - 1j]], dtype=torch.cfloat, device="mps")
torch.testing.assert_close((matrix @ matrix).cpu(), matrix.cpu() @ matrix.cpu())
