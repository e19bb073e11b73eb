import io

import torch

torch.serialization.register_package(0, lambda storage: "cuda:1", lambda storage, location: None)
file = io.BytesIO()
torch.save(torch.arange(4.0), file)  # from the second GPU of a machine
file.seek(0)
assert torch.load(file).to("mps").sum().item() == 6.0
