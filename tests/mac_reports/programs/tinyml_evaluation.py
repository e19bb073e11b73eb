import numpy
import torch

device = torch.device("mps")
predictions = torch.tensor([]).to(device)
for batch in (numpy.array([0.5, 1.5]), numpy.array([2.5])):
    data = torch.from_numpy(batch).to(device).float()
    predictions = torch.cat((predictions, data * 2))
assert predictions.tolist() == [1.0, 3.0, 5.0]
