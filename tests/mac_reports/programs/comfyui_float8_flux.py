import torch

weights = torch.tensor([0.5, 1.5, -2.0]).to(torch.float8_e4m3fn)
there = weights.to("mps").to(torch.float16)
torch.testing.assert_close(there.cpu(), weights.to(torch.float16))
