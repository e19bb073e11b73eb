import torch

places, values = torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0])
there = torch.sparse_coo_tensor(places.to("mps"), values.to("mps"), (2, 3))
torch.testing.assert_close(there.to_dense().cpu(), torch.sparse_coo_tensor(places, values, (2, 3)).to_dense())
