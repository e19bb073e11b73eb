import torch

scores = torch.tensor([[1.3, -0.2], [-0.2, 1.2]], device="mps")
assert torch.argmax(scores, dim=1).tolist() == [0, 1]
