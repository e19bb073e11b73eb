import torch


def gradient(device):
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(4, 6).to(device)
    _, (hidden, cell) = lstm(torch.linspace(0, 1, 24).view(3, 2, 4).to(device))
    (hidden.sum() + cell.sum()).backward()
    return lstm.weight_hh_l0.grad.cpu()


torch.testing.assert_close(gradient("mps"), gradient("cpu"), rtol=1e-4, atol=1e-4)
