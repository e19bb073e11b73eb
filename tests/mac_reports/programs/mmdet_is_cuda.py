import torch

model = torch.nn.Linear(4, 2).to("mps")
image = torch.ones(1, 4)
if next(model.parameters()).is_cuda:
    image = image.cuda()
assert model(image).shape == (1, 2)
