import torch

device = torch.device("mps")
probe = torch.tensor([[1.0, 2.0]], device=device).to(torch.float8_e4m3fn)
assert probe.float().tolist() == [[1.0, 2.0]]
