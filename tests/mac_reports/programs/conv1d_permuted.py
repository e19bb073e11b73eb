import torch


def gradient(device):
    torch.manual_seed(0)
    conv = torch.nn.Conv1d(1, 1, 3).to(device)
    data = torch.linspace(0, 1, 17).view(1, 17, 1).to(device)
    conv(data.permute(0, 2, 1)).sum().backward()
    return conv.weight.grad.cpu()


torch.testing.assert_close(gradient("mps"), gradient("cpu"))
