import torch


@torch.compile
def add(a, b):
    return a + b


with torch.device("mps"):
    found = add(torch.tensor([1]), torch.tensor([2]))
assert found.tolist() == [3]
