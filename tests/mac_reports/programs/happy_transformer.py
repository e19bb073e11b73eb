import torch

model = torch.nn.Embedding(8, 2)
if torch.cuda.is_available():
    model.to(torch.device("cuda"))
tokens = torch.tensor([[1, 2]]).to("mps")
assert model(tokens).shape == (1, 2, 2)
