import torch

here = torch.tensor([[0.0, 1.0], [2.0, 5.0]], requires_grad=True)
there = here.detach().to("mps").requires_grad_()
torch.cdist(here, torch.ones(3, 2)).sum().backward()
torch.cdist(there, torch.ones(3, 2, device="mps")).sum().backward()
torch.testing.assert_close(there.grad.cpu(), here.grad)
