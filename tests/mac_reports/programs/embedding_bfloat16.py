import torch

table = torch.arange(8.0).view(4, 2).bfloat16()
rows = torch.nn.functional.embedding(torch.tensor([3, 1]).to("mps"), table.to("mps"))
torch.testing.assert_close(rows.cpu(), torch.tensor([[6.0, 7.0], [2.0, 3.0]]).bfloat16())
