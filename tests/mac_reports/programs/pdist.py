import torch

points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
there = points.to("mps").requires_grad_()
torch.pdist(there, p=2).pow(2).sum().backward()
here = points.requires_grad_()
torch.pdist(here, p=2).pow(2).sum().backward()
torch.testing.assert_close(there.grad.cpu(), here.grad)
