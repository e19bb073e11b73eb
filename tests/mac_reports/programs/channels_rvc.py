import torch

torch.manual_seed(0)
up = torch.nn.ConvTranspose1d(2, 1, 16, 8)
mel = torch.linspace(-1, 1, 2 * 9000).view(1, 2, 9000)
expected = up(mel)
torch.testing.assert_close(up.to("mps")(mel.to("mps")).cpu(), expected, rtol=1e-4, atol=1e-4)
