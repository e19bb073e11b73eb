import torch


def gradient(device):
    torch.manual_seed(0)
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 3)).to(device)
    layer(torch.linspace(-1, 1, 8).view(2, 4).to(device)).square().sum().backward()
    return layer.parametrizations.weight.original1.grad.cpu()


torch.testing.assert_close(gradient("mps"), gradient("cpu"))
