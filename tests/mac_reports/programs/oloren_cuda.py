import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).cuda()
features = torch.ones(2, 4).cuda()
torch.testing.assert_close(model(features).cpu(), model.cpu()(torch.ones(2, 4)))
