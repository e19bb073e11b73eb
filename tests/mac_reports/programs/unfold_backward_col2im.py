import torch


def gradient(device):
    image = torch.arange(36.0, device=device).view(1, 1, 6, 6).requires_grad_()
    torch.nn.functional.unfold(image, kernel_size=3, padding=1).square().sum().backward()
    return image.grad.cpu()


torch.testing.assert_close(gradient("mps"), gradient("cpu"))
