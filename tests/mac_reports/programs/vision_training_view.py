import torch


def gradient(device):
    torch.manual_seed(0)
    patches = torch.nn.Conv2d(3, 8, 2, 2).to(device)
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).to(device)
    tokens = patches(torch.linspace(0, 1, 48).view(1, 3, 4, 4).to(device)).flatten(2).transpose(1, 2)
    attention(tokens, tokens, tokens)[0].square().sum().backward()
    return patches.weight.grad.cpu()


torch.testing.assert_close(gradient("mps"), gradient("cpu"), rtol=1e-3, atol=1e-5)
