import torch

x = torch.zeros(3, device="mps")
x[1] = 1
x[2] = 3
assert x.tolist() == [0.0, 1.0, 3.0]
