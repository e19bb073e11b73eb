import torch


def gradient(compiled):
    torch.manual_seed(0)
    net = torch.nn.Conv2d(1, 2, 3).to("mps")
    call = torch.compile(net) if compiled else net
    call(torch.ones(1, 1, 5, 5, device="mps")).square().sum().backward()
    return net.weight.grad.cpu()


torch.testing.assert_close(gradient(True), gradient(False))
