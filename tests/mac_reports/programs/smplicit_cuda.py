import io

import torch

file = io.BytesIO()
torch.save(torch.nn.Linear(2, 2).state_dict(), file)
file.seek(0)
model = torch.nn.Linear(2, 2)
model.load_state_dict(torch.load(file, map_location=torch.device("cpu")))
model = model.cuda()
points = torch.cuda.FloatTensor([[1.0, 2.0]])
assert model(points).device == points.device
