import torch

activations = torch.arange(12.0, device="mps").view(3, 4).half()
means = activations.to(torch.float64).abs().mean(0)
torch.testing.assert_close(means.cpu().float(), torch.tensor([4.0, 5.0, 6.0, 7.0]))
