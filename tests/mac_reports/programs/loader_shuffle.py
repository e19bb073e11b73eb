import torch

torch.set_default_device(torch.device("mps:0"))
numbers = torch.arange(20)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(numbers), batch_size=8, shuffle=True)
assert sorted(torch.cat([batch for (batch,) in loader]).tolist()) == list(range(20))
