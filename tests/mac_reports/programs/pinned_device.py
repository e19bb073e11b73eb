import torch

buffer = torch.empty((2, 2), device="cpu", pin_memory=True)
assert buffer.device == torch.device("cpu")
buffer.numpy()[:] = 3
assert buffer.to("mps").sum().item() == 12
