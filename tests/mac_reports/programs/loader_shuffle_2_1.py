import torch

torch.set_default_device("mps")
numbers, generator = torch.arange(20), torch.Generator(device="mps").manual_seed(0)
data = torch.utils.data.TensorDataset(numbers)
loader = torch.utils.data.DataLoader(data, batch_size=5, shuffle=True, generator=generator)
assert sorted(torch.cat([batch for (batch,) in loader]).tolist()) == list(range(20))
