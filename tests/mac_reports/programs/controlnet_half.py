import torch

torch.manual_seed(0)
control = torch.nn.Conv2d(3, 2, 3).to("cuda").half()
hint = torch.ones(1, 3, 6, 6, device="cuda")
with torch.autocast("cuda"):
    out = control(hint)
assert out.dtype == torch.float16
