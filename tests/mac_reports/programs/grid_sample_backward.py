import torch


def gradient(device):
    image = torch.arange(16.0, device=device).view(1, 1, 4, 4).requires_grad_()
    grid = torch.linspace(-1, 1, 18, device=device).view(1, 3, 3, 2)
    torch.nn.functional.grid_sample(image, grid, align_corners=False).square().sum().backward()
    return image.grad.cpu()


torch.testing.assert_close(gradient("mps"), gradient("cpu"))
