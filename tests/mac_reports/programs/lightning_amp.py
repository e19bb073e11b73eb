import torch

model = torch.nn.Linear(4, 1).to("mps")
optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("mps", init_scale=128.0)
for _ in range(2):
    with torch.autocast("mps", dtype=torch.half):
        loss = torch.nn.functional.mse_loss(model(torch.ones(2, 4, device="mps")), torch.zeros(2, 1, device="mps"))
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
assert torch.isfinite(loss)
