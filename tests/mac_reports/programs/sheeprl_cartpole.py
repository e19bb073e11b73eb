import numpy
import torch

rewards, done = numpy.ones(3), numpy.array([0.0, 0.0, 1.0])
device = torch.device("mps")
returns, total = [], torch.zeros(1, device=device)
for reward, end in zip(torch.tensor(rewards, device=device).flip(0), torch.tensor(done, device=device).flip(0)):
    total = reward + 0.5 * total * (1 - end)
    returns.insert(0, total.item())
assert returns == [1.75, 1.5, 1.0]
