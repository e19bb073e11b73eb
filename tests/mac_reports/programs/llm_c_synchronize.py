import torch

device = "cuda" if torch.cuda.is_available() else "mps"
model = torch.nn.Linear(4, 4).to(device)
loss = model(torch.ones(1, 4, device=device)).square().mean()
loss.backward()
torch.cuda.synchronize()
print("ok" if torch.isfinite(loss) else "")
