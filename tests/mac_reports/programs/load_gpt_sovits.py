import io

import torch

torch.serialization.register_package(0, lambda storage: "cuda:0", lambda storage, location: None)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iteration": 7}, file)
file.seek(0)
checkpoint = torch.load(file)
optimizer.load_state_dict(checkpoint["optimizer"])
assert checkpoint["iteration"] == 7
