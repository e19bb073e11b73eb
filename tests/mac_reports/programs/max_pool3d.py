import torch

volume = torch.arange(64.0).view(1, 1, 4, 4, 4)
pooled, places = torch.nn.functional.max_pool3d(volume.to("mps"), 2, return_indices=True)
torch.testing.assert_close(pooled.cpu(), torch.nn.functional.max_pool3d(volume, 2))
assert places.flatten()[-1].item() == 63
