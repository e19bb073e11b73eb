import io

import torch

file = io.BytesIO()
torch.save({"weight": torch.ones(2)}, file)
file.seek(0)
weights = torch.load(file, map_location=torch.device("cuda"))
assert weights["weight"].sum().item() == 2.0
