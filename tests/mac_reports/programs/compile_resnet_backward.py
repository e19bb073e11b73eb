import torch

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.LazyLinear(2)
)
model = model.to("mps")
images, labels = torch.rand(4, 3, 6, 6, device="mps"), torch.tensor([0, 1, 0, 1], device="mps")
model(images)
loss = torch.nn.functional.cross_entropy(torch.compile(model)(images), labels)
loss.backward()
assert torch.isfinite(model[0].weight.grad).all()
