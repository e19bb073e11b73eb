import torch


def gradient(device):
    torch.manual_seed(0)
    net = torch.nn.Linear(8, 6).to(device)
    lines = torch.linspace(-1, 1, 10 * 2 * 8).view(10, 2, 8).to(device)
    scores = net(lines).log_softmax(2)
    targets = torch.tensor([1, 2, 3, 4, 5]).to(device)
    loss = torch.nn.functional.ctc_loss(scores, targets, torch.tensor([10, 9]), torch.tensor([3, 2]), reduction="sum")
    loss.backward()
    return net.weight.grad.cpu()


torch.testing.assert_close(gradient("mps"), gradient("cpu"))
