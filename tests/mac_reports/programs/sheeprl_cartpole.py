import numpy
import torch

rewards, done = numpy.ones(3), numpy.array([0.0, 0.0, 1.0])
device = torch.device("mps")
rewards, done = torch.tensor(rewards, device=device), torch.tensor(done, device=device)
returns, total = [], torch.zeros(1, device=device)
for step in (2, 1, 0):
    total = rewards[step] + 0.5 * total * (1 - done[step])
    returns.insert(0, total.item())
assert returns == [1.75, 1.5, 1.0]
