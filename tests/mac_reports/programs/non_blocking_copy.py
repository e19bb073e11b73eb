import torch

a = torch.arange(10)
assert torch.equal(a.clone().to("mps"), a.to("mps", non_blocking=True))
