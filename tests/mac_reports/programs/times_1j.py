import torch

x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
torch.testing.assert_close((x.to("mps") * 1j).cpu(), x * 1j)
