import io

import torch

torch.serialization.register_package(0, lambda storage: "cuda:0", lambda storage, location: None)
file = io.BytesIO()
torch.save(torch.nn.Conv2d(1, 1, 3).state_dict(), file)  # as a machine with CUDA writes it
file.seek(0)
sam = torch.nn.Conv2d(1, 1, 3)
sam.load_state_dict(torch.load(file))
sam.to(device="mps").eval()
assert sam(torch.ones(1, 1, 4, 4, device="mps")).shape == (1, 1, 2, 2)
