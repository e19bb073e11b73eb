import torch

device = "mps"
x, y = torch.arange(6).view(2, 3), torch.arange(1, 7).view(2, 3)
x, y = x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
assert (y - x).sum().item() == 6
