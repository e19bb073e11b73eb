import torch

buffer = torch.full((1, 4, 3), 1024, dtype=torch.int32, device="mps")
predictions = torch.tensor([7, 8, 9])
buffer[0, 1:, 2] = predictions.to("mps")
assert buffer[0, :, 2].tolist() == [1024, 7, 8, 9]
assert buffer[0, :, 0].tolist() == [1024] * 4
