import torch

torch.manual_seed(0)
conv = torch.nn.Conv2d(2, 2, 3).bfloat16()
latent = torch.linspace(-1, 1, 50).view(1, 2, 5, 5).bfloat16()
expected = conv(latent)
torch.testing.assert_close(conv.to("mps")(latent.to("mps")).cpu(), expected, rtol=2e-2, atol=2e-2)
