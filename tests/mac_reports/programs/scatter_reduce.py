import torch

messages, index = torch.tensor([1.0, 5.0, 2.0, 4.0]), torch.tensor([0, 1, 0, 1])
there = torch.full((2,), float("-inf"), device="mps")
there.scatter_reduce_(dim=0, index=index.to("mps"), src=messages.to("mps"), reduce="amax", include_self=False)
torch.testing.assert_close(there.cpu(), torch.tensor([2.0, 5.0]))
