import torch

conv = torch.nn.Conv2d(3, 4, 3).to("mps")
with torch.autocast(device_type="mps", dtype=torch.float16):
    out = conv(torch.ones(1, 3, 8, 8, device="mps"))
assert out.dtype == torch.float16
