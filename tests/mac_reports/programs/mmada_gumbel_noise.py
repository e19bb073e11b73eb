import torch

torch.manual_seed(0)
logits = torch.tensor([[0.1, 9.0, 0.3], [8.0, 0.2, 0.1]], device="mps").to(torch.float64)
noise = torch.rand_like(logits, dtype=torch.float64)
chosen = (logits.exp() / (-torch.log(noise)) ** 0.1).argmax(dim=-1)
assert chosen.tolist() == [1, 0]
