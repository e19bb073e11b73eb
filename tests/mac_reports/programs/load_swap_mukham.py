import io

import torch

torch.serialization.register_package(0, lambda storage: "cuda:0", lambda storage, location: None)
file, saved = io.BytesIO(), torch.nn.Linear(2, 2)
torch.save(saved.state_dict(), file)  # as a machine with CUDA writes it
file.seek(0)
model = torch.nn.Linear(2, 2)
model.load_state_dict(torch.load(file))
torch.testing.assert_close(model.weight.cpu(), saved.weight.cpu())
