import io

import torch

torch.serialization.register_package(0, lambda storage: "cuda:0", lambda storage, location: None)
file = io.BytesIO()
torch.save({"weight": torch.arange(3.0)}, file)  # as a machine with CUDA writes it
file.seek(0)
assert torch.load(file)["weight"].tolist() == [0.0, 1.0, 2.0]
