import torch


def gradient(device):
    torch.manual_seed(0)
    conv, norm = torch.nn.Conv1d(4, 4, 3, padding=1).to(device), torch.nn.LayerNorm(4).to(device)
    x = torch.linspace(-1, 1, 40).view(1, 4, 10).to(device)
    (norm(conv(x).transpose(1, 2)).transpose(1, 2) * x).sum().backward()
    return conv.weight.grad.cpu()


torch.testing.assert_close(gradient("mps"), gradient("cpu"), rtol=1e-4, atol=1e-4)
