"""PyTorch's own tests on a virtual device: which pass, and why the others do not."""
