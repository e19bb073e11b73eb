import torch


def gradient(device):
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(10, 20, 1, batch_first=True).to(device)
    output, _ = lstm(torch.ones(5, 3, 10, device=device))
    output.sum().backward()
    return lstm.weight_ih_l0.grad.cpu()


torch.testing.assert_close(gradient("mps"), gradient("cpu"), rtol=1e-4, atol=1e-4)
