import time

import torch

x = torch.ones(32, 32, device="mps")
torch.cuda.synchronize()
begun = time.time()
y = x @ x
torch.cuda.synchronize()
assert time.time() >= begun
assert y.mean().item() == 32.0
