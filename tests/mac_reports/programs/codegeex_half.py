import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 8).half().cuda().eval()
out = model(torch.ones(1, 8, dtype=torch.float16, device="cuda"))
torch.testing.assert_close(out.cpu(), model.cpu()(torch.ones(1, 8).half()), rtol=1e-2, atol=1e-2)
