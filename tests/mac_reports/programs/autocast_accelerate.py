import torch

model = torch.nn.Linear(4, 2).to("mps")
model.forward = torch.autocast(device_type="mps", dtype=torch.bfloat16)(model.forward)
assert model(torch.ones(1, 4, device="mps")).dtype == torch.bfloat16
