import io

import torch

torch.serialization.register_package(0, lambda storage: "cuda:0", lambda storage, location: None)
file = io.BytesIO()
torch.save({"netG": torch.full((2, 2), 0.5).half()}, file)  # as a machine with CUDA writes it
file.seek(0)
weights = torch.load(file)["netG"]
assert weights.dtype == torch.float16
assert weights.float().sum().item() == 2.0
