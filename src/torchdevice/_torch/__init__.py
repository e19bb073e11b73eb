"""Every private name and version check of torch that TorchDevice uses, each with its reason and expiry."""
