import torch

sparse = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [2, 0, 2]]), torch.tensor([3.0, 4.0, 5.0]), [2, 4])
moved = sparse.to(torch.device("mps"), non_blocking=True)
torch.testing.assert_close(moved.to_dense().cpu(), sparse.to_dense())
