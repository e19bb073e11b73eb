import io

import torch

file = io.BytesIO()
torch.save({"weight": torch.tensor([0.25, -1.0]).to(torch.float8_e4m3fn)}, file)
file.seek(0)
loaded = torch.load(file, map_location="mps")["weight"]
assert loaded.to(torch.float32).tolist() == [0.25, -1.0]
