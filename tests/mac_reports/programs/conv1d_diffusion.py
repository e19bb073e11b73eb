import torch

torch.manual_seed(0)
conv = torch.nn.Conv1d(4, 8, 3, padding=2, dilation=2)
mel = torch.linspace(-1, 1, 48).view(1, 4, 12)
expected = conv(mel)
torch.testing.assert_close(conv.to("mps")(mel.to("mps")).cpu(), expected)
