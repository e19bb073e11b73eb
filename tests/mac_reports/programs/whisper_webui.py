import torch

heads = torch.zeros(4, 6, dtype=torch.bool)
heads[0, 5] = heads[3, 1] = True
there = heads.to_sparse().to("mps")
torch.testing.assert_close(there.indices().T.cpu(), torch.tensor([[0, 5], [3, 1]]))
