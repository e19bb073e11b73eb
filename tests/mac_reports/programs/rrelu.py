import torch

x = torch.tensor([-2.0, 3.0], device="mps", requires_grad=True)
out = torch.nn.RReLU(0.1, 0.3)(x)
out.sum().backward()
assert -0.6 <= out[0].item() <= -0.2
assert out[1].item() == 3.0
assert x.grad[1].item() == 1.0
