import torch

dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float16"
scaler = torch.cuda.amp.GradScaler(enabled=(dtype == "float16"))
model = torch.nn.Linear(3, 1).to("mps")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
with torch.amp.autocast(device_type="mps", dtype=getattr(torch, dtype)):
    loss = model(torch.ones(2, 3, device="mps")).square().mean()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
assert torch.isfinite(model.weight).all()
