import torch

torch.manual_seed(0)
image, samples = torch.arange(98.0).view(1, 2, 7, 7), torch.full((1, 2, 2), 0.3)
pool = torch.nn.FractionalMaxPool2d(kernel_size=2, output_size=3, _random_samples=samples)
there = torch.nn.FractionalMaxPool2d(kernel_size=2, output_size=3, _random_samples=samples.to("mps"))
torch.testing.assert_close(there(image.to("mps")).cpu(), pool(image))
