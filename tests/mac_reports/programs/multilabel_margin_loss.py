import torch


def gradient(device):
    scores = torch.tensor([[0.1, 0.2, 0.4, 0.8]], device=device, requires_grad=True)
    torch.nn.MultiLabelMarginLoss()(scores, torch.tensor([[3, 0, -1, 1]], device=device)).backward()
    return scores.grad.cpu()


torch.testing.assert_close(gradient("mps"), gradient("cpu"))
