import torch

encoder = torch.nn.Linear(4, 4).to("mps")
with torch.autocast("mps", dtype=torch.float16):
    features = encoder(torch.ones(1, 4).cuda())
assert features.device.type == "mps"
