import torch

x, source, index = torch.arange(5.0), torch.arange(10.0, 15.0), torch.tensor([4, 0, 2, 1, 3])
there = torch.index_copy(x.to("mps"), 0, index.to("mps"), source.to("mps"))
torch.testing.assert_close(there.cpu(), torch.index_copy(x, 0, index, source))
