import torch


def gradient(device):
    scores = torch.tensor([[0.1, 0.2, 0.4], [0.9, 0.2, 0.3]], device=device, requires_grad=True)
    torch.nn.functional.multi_margin_loss(scores, torch.tensor([2, 1], device=device)).backward()
    return scores.grad.cpu()


torch.testing.assert_close(gradient("mps"), gradient("cpu"))
