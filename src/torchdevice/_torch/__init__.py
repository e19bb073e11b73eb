"""Every private name and version probe of torch that TorchDevice touches, each with its reason and expiry."""
