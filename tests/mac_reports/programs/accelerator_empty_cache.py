import torch

assert torch.accelerator.current_accelerator().type == "mps"
x = torch.ones(4, device=torch.accelerator.current_accelerator())
torch.accelerator.empty_cache()
assert x.sum().item() == 4.0
