import torch

numbers = torch.complex(torch.arange(9.0), torch.ones(9)).view(3, 3)
torch.testing.assert_close(numbers.to("mps").abs().cpu(), numbers.abs())
torch.testing.assert_close(torch.fft.fft2(numbers.to("mps")).cpu(), torch.fft.fft2(numbers))
