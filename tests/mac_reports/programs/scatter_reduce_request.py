import torch


def gradient(device):
    values = torch.tensor([1.0, 5.0, 2.0, 4.0], device=device, requires_grad=True)
    index = torch.tensor([0, 1, 0, 0], device=device)
    means = torch.zeros(2, device=device).scatter_reduce(0, index, values, "mean", include_self=False)
    means.square().sum().backward()
    return values.grad.cpu()


torch.testing.assert_close(gradient("mps"), gradient("cpu"))
