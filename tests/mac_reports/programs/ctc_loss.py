import torch

torch.manual_seed(0)
scores = torch.randn(12, 2, 5).log_softmax(2)
targets, lengths, sizes = torch.randint(1, 5, (2, 4)), torch.tensor([12, 12]), torch.tensor([4, 3])
loss = torch.nn.CTCLoss()
found = loss(scores.to("mps"), targets.to("mps"), lengths.to("mps"), sizes.to("mps"))
torch.testing.assert_close(found.cpu(), loss(scores, targets, lengths, sizes))
