import io

import torch

torch.serialization.register_package(0, lambda storage: "cuda:0", lambda storage, location: None)
file = io.BytesIO()
torch.save({"string_to_param": {"*": torch.nn.Parameter(torch.ones(2, 3))}}, file)  # as a machine with CUDA writes it
file.seek(0)
embedding = next(iter(torch.load(file)["string_to_param"].values()))
assert embedding.shape[-1] == 3
