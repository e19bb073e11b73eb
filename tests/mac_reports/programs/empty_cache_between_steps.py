import torch

for _ in range(3):
    large = torch.ones(1024, 1024, device="mps")
    total = large.sum().item()
    del large
    torch.mps.empty_cache()
assert total == 1024 * 1024
assert torch.mps.current_allocated_memory() < 1024 * 1024
