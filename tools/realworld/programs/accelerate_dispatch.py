"""init_empty_weights, load_checkpoint_and_dispatch and dispatch_model with device_map={"": 0}: big model inference."""

import json

import torch
from accelerate import (
    Accelerator,
    dispatch_model,
    infer_auto_device_map,
    init_empty_weights,
    load_checkpoint_and_dispatch,
)
from accelerate.utils import get_balanced_memory, set_seed


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 32)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(4))
        self.head = torch.nn.Linear(32, 50)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        for block in self.blocks:
            hidden = hidden + torch.relu(block(hidden))
        return self.head(hidden)


set_seed(0)
Accelerator().save_model(Net(), "checkpoint")
with init_empty_weights():
    empty = Net()
assert empty.head.weight.device.type == "meta"
model = load_checkpoint_and_dispatch(empty, "checkpoint", device_map={"": 0})
tokens = torch.arange(12).reshape(2, 6)
with torch.no_grad():
    first = model(tokens.to(0))

with init_empty_weights():
    empty = Net()
memory = get_balanced_memory(empty, dtype=torch.float16)
device_map = infer_auto_device_map(empty, max_memory=memory, dtype=torch.float16)
halves = load_checkpoint_and_dispatch(empty, "checkpoint", device_map=device_map, dtype=torch.float16)
with torch.no_grad():
    second = halves(tokens.to(0))

third = dispatch_model(Net(), device_map={"": 0})
with torch.no_grad():
    assert third(tokens.to(0)).shape == first.shape
values = first[0, -1, :8].tolist() + second[0, -1, :8].float().tolist()
devices = sorted({str(p.device) for net in (model, halves, third) for p in net.parameters()})
print("RESULT", json.dumps({"steps": 3, "devices": devices, "values": values}))
