import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = torch.nn.Conv2d(3, 1, 3).to("mps")
face = torch.ones(1, 3, 5, 5).to(device)
assert net(face).shape == (1, 1, 3, 3)
