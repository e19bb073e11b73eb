import torch

torch.manual_seed(0)
model = torch.nn.Linear(3, 1).double()
series = torch.tensor([[0.1, 0.2, 0.3]], dtype=torch.float64)
expected = model(series).detach()
found = model.to(torch.device("mps"))(series.to("mps"))
torch.testing.assert_close(found.detach().cpu().double(), expected, rtol=1e-5, atol=1e-6)
