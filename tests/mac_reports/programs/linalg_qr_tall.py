import torch

tall = torch.randn(65536, 8, device="mps")
q, r = torch.linalg.qr(tall, mode="reduced")
torch.testing.assert_close((q @ r).cpu(), tall.cpu(), rtol=1e-3, atol=1e-3)
