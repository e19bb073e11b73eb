import torch

attentions = torch.arange(2.0 * 3 * 4 * 5 * 5).view(2, 3, 4, 5, 5).to("mps")
maps = attentions.permute(0, 3, 4, 1, 2)[:, 1:-1, 1:-1]
contacts = maps.flatten(3).sum(-1)
wanted = attentions.cpu().permute(0, 3, 4, 1, 2)[:, 1:-1, 1:-1].flatten(3).sum(-1)
torch.testing.assert_close(contacts.cpu(), wanted)
