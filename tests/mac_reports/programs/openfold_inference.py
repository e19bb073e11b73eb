import torch

pair = torch.ones(1, 4, 4, device="cuda")
with torch.amp.autocast("cuda", enabled=False):
    update = pair.float() @ pair.float()
torch.cuda.empty_cache()
assert update.mean().item() == 4.0
assert torch.cuda.memory_allocated() >= 0
