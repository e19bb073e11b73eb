import torch

scores = torch.tensor([[0.1, 0.9], [0.8, 0.2]], device="mps")
rows, columns = (scores > 0.5).nonzero(as_tuple=False).T
assert rows.tolist() == [0, 1]
assert columns.tolist() == [1, 0]
