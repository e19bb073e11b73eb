import torch

activations = torch.arange(-272, 272).remainder(7).to(torch.int8).view(17, 32)
weights = torch.arange(256).remainder(5).to(torch.int8).view(32, 8)
there = torch._int_mm(activations.to("mps"), weights.to("mps"))
torch.testing.assert_close(there.cpu(), activations.int() @ weights.int())
