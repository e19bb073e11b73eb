import torch


def gradient(device):
    image = torch.linspace(0, 1, 64).view(1, 1, 8, 8).to(device).requires_grad_()
    small = torch.nn.functional.interpolate(image, size=(3, 3), mode="bilinear", antialias=True)
    small.square().sum().backward()
    return image.grad.cpu()


torch.testing.assert_close(gradient("mps"), gradient("cpu"))
