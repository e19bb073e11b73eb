import torch

labels = torch.tensor([[4, 4], [7, 4]], device="mps")
found, inverse = torch.unique(labels, return_inverse=True)
torch.testing.assert_close(found[inverse].cpu(), labels.cpu())
