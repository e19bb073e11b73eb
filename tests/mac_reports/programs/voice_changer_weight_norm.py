import warnings

import torch

warnings.simplefilter("ignore")
torch.manual_seed(0)
conv = torch.nn.utils.weight_norm(torch.nn.Conv1d(2, 3, 3))
sound = torch.linspace(-1, 1, 32).view(1, 2, 16)
expected = conv(sound)
torch.testing.assert_close(conv.to("mps")(sound.to("mps")).cpu(), expected)
