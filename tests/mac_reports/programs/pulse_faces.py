import torch

torch.manual_seed(0)
latent = torch.randn((1, 18, 4), dtype=torch.float, requires_grad=True, device="cuda")
optimizer = torch.optim.Adam([latent], lr=0.1)
start = latent.detach().norm().item()
for _ in range(5):
    optimizer.zero_grad()
    latent.square().sum().backward()
    optimizer.step()
assert latent.detach().norm().item() < start
