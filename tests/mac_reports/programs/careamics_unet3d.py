import torch


def step(device):
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv3d(1, 2, 3, padding=1), torch.nn.MaxPool3d(2), torch.nn.Upsample(scale_factor=2)
    )
    volume = torch.linspace(0, 1, 512).view(1, 1, 8, 8, 8).to(device)
    net.to(device)(volume).square().sum().backward()
    return net[0].weight.grad.cpu()


torch.testing.assert_close(step("mps"), step("cpu"), rtol=1e-4, atol=1e-4)
