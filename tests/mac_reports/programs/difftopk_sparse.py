import torch

device = torch.device("mps")
swaps = torch.sparse_coo_tensor(torch.tensor([[0, 1, 2], [1, 0, 2]], device=device), torch.ones(3, device=device))
mixed = torch.sparse.mm(swaps, torch.tensor([[5.0], [6.0], [7.0]], device=device))
torch.testing.assert_close(mixed.cpu(), torch.tensor([[6.0], [5.0], [7.0]]))
