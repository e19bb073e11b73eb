import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 1).to("mps")
optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("mps", init_scale=128.0)
before = model.weight.detach().clone()
with torch.autocast("mps", dtype=torch.float16):
    loss = model(torch.ones(2, 4, device="mps")).square().mean()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
assert not torch.equal(before, model.weight)
