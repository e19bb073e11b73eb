import torch


class Evaluator:
    def __init__(self, device="cuda:0"):
        self.device = device
        self.model = torch.nn.Linear(3, 2).to(device)

    def score(self, inputs):
        return self.model(inputs.to(self.device)).softmax(-1)


torch.testing.assert_close(Evaluator().score(torch.ones(1, 3)).sum().cpu(), torch.tensor(1.0))
