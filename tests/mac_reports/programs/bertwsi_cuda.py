import torch

ids = torch.cuda.LongTensor([[1, 0, 2]])
mask = torch.ones(1, 3).cuda(0)
table = torch.arange(6.0).view(3, 2).cuda(0)
torch.testing.assert_close((table[ids] * mask[..., None]).cpu(), torch.tensor([[[2.0, 3], [0, 1], [4, 5]]]))
