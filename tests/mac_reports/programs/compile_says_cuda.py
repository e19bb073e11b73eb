import torch

torch.set_default_device("mps")
net = torch.nn.Conv2d(3, 2, 3)
image = torch.ones(1, 3, 6, 6)
torch.testing.assert_close(torch.compile(net)(image).cpu(), net(image).cpu())
