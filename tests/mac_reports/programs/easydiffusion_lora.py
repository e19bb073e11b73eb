import torch

weight = torch.ones(4, 4, device="mps").half()
down, up = torch.full((1, 4), 0.5).bfloat16().to("mps"), torch.full((4, 1), 2.0).bfloat16().to("mps")
torch.testing.assert_close((weight + (up @ down).to(weight.dtype)).cpu(), torch.full((4, 4), 2.0).half())
