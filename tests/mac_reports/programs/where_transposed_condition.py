import torch

condition, target = torch.tensor([[True, True], [True, True]]).T, torch.tensor([[0, 0], [0, 1]])
torch.testing.assert_close(
    torch.where(condition.to("mps"), target.to("mps"), 0).cpu(), torch.where(condition, target, 0)
)
