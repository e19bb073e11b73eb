import torch

generator = torch.Generator("cuda").manual_seed(231)
noise = torch.randn(1, 4, 8, 8, device="cuda", generator=generator)
torch.cuda.empty_cache()
torch.testing.assert_close(noise.mean().cpu(), torch.tensor(0.0), rtol=0, atol=0.5)
