import torch

heads = torch.zeros(4, 6, dtype=torch.bool)
heads[2, 3] = heads[3, 1] = True
model = torch.nn.Linear(4, 4)
model.register_buffer("alignment_heads", heads.to_sparse(), persistent=False)
model.to("mps")
torch.testing.assert_close(model.alignment_heads.to_dense().cpu(), heads)
