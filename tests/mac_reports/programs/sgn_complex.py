import torch

numbers = torch.tensor([3 + 4j, 0, -2j], dtype=torch.complex64)
torch.testing.assert_close(torch.sgn(numbers.to("mps")).cpu(), torch.sgn(numbers))
