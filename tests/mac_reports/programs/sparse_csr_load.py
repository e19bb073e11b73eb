import torch

counts = torch.tensor([[0.0, 3.0, 0.0], [1.0, 0.0, 0.0]])
there = counts.to_sparse_csr().to("mps").to_dense()
assert there.device.type == "mps"
torch.testing.assert_close(there.cpu(), counts)
