import torch

layer = torch.nn.Linear(4, 4).to("mps")
with torch.autocast("mps", dtype=torch.bfloat16):
    out = layer(torch.ones(2, 4, device="mps"))
torch.testing.assert_close(out.float().cpu(), layer(torch.ones(2, 4, device="mps")).cpu(), rtol=5e-2, atol=5e-2)
