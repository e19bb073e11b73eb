import torch

x = torch.arange(25.0).reshape(1, 1, 5, 5)
values, places = torch.nn.functional.adaptive_max_pool2d(x.to("mps"), (3, 3), return_indices=True)
expected, indices = torch.nn.functional.adaptive_max_pool2d(x, (3, 3), return_indices=True)
torch.testing.assert_close(values.cpu(), expected)
torch.testing.assert_close(places.cpu(), indices)
