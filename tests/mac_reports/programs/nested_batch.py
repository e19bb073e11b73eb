import torch

parts = [torch.ones(2, 3), torch.ones(4, 3)]
nested = torch.nested.as_nested_tensor([part.to("mps") for part in parts])
assert [part.sum().item() for part in nested.unbind()] == [6.0, 12.0]
