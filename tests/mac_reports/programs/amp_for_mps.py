import torch

a, b = torch.rand(4, 4, device="mps"), torch.rand(4, 4, device="mps")
with torch.autocast("mps"):
    assert torch.addmm(a, a, b).dtype == torch.float16
    assert (a @ b).softmax(0).dtype == torch.float32
