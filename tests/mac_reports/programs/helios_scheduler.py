import torch

sigmas = torch.linspace(1.0, 0.0, 4, dtype=torch.float64)
flow = torch.full((4,), 0.5, device="mps")
x0 = torch.ones(4, device="mps").double() - sigmas.to("mps") * flow.double()
torch.testing.assert_close(x0.cpu().double(), 1 - 0.5 * sigmas, rtol=1e-6, atol=1e-6)
