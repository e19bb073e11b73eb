import torch

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).to("mps")
x = torch.linspace(-1, 1, 8).view(2, 4).to("mps")
torch.testing.assert_close(torch.compile(net)(x).cpu(), net(x).cpu())
