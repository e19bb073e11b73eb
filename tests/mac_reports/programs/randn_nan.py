import torch

torch.manual_seed(0)
for _ in range(20):
    assert not torch.isnan(torch.randn((32, 1000), device="mps")).any()
