import torch

torch.set_default_device("mps")
numbers = torch.empty(50, dtype=torch.int64).random_()
assert numbers.device.type == "mps"
assert (numbers >= 0).all()
