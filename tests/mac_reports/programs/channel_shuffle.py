import torch

image = torch.arange(16.0).view(1, 4, 2, 2)
shuffle = torch.nn.ChannelShuffle(2)
torch.testing.assert_close(shuffle(image.to("mps")).cpu(), shuffle(image))
