import io

import torch

torch.serialization.register_package(0, lambda storage: "cuda:0", lambda storage, location: None)
file = io.BytesIO()
torch.save({"state_dict": {"w": torch.arange(2.0), "n": torch.tensor(3)}}, file)  # as a machine with CUDA writes it
file.seek(0)
state = torch.load(file, weights_only=False)["state_dict"]
assert state["n"].item() == 3
