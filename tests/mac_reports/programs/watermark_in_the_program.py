import os

import torch

os.environ["PYTORCH_MPS_HIGH_WATERMARK_RATIO"] = "0.0"
torch.mps.set_per_process_memory_fraction(0.5)
layer = torch.nn.Linear(256, 256).to("mps")
layer(torch.ones(64, 256, device="mps")).sum().backward()
assert torch.mps.recommended_max_memory() > 0
