import torch

weight = torch.arange(4.0, device="mps")
torch.testing.assert_close(weight.dequantize().cpu(), torch.arange(4.0))
