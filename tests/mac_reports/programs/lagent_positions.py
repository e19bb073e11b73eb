import torch

attention_mask = torch.tensor([[0, 0, 1, 1, 1]], device="mps")
positions = attention_mask.long().cumsum(-1) - 1
positions.masked_fill_(attention_mask == 0, 1)
assert positions.tolist() == [[1, 1, 0, 1, 2]]
