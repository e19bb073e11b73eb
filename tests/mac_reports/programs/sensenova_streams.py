import torch

device = torch.device("cuda")
layer, stream = torch.nn.Linear(4, 4), torch.cuda.Stream(device)
with torch.cuda.stream(stream):
    layer.to(device, non_blocking=True)
torch.cuda.current_stream(device).wait_stream(stream)
for parameter in layer.parameters():
    parameter.data.record_stream(torch.cuda.current_stream(device))
assert torch.isfinite(layer(torch.ones(1, 4, device=device))).all()
