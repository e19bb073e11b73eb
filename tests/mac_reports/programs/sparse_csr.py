import torch

rows = torch.tensor([0, 2, 4], dtype=torch.int32).to("mps")
columns = torch.tensor([0, 1, 0, 1], dtype=torch.int32).to("mps")
values = torch.tensor([1.0, 2.0, 3.0, 4.0]).to("mps")
matrix = torch.sparse_csr_tensor(rows, columns, values)
product = matrix @ torch.ones(2, 1, device="mps")
torch.testing.assert_close(product.cpu(), torch.tensor([[3.0], [7.0]]))
