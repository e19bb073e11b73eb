"""A checkpoint that one machine writes and another machine with a different device reads.

torchdevice run --virtual cuda examples/checkpoint.py save model.pt    a machine with CUDA
torchdevice run examples/checkpoint.py load model.pt                   this machine
"""

import sys

import torch
from torch import nn

action, path = sys.argv[1:]
model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.Adam(model.parameters())

if action == "save":
    model(torch.ones(8, 4, device="cuda")).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    print(f"saved from {model.weight.device}, sum of the weights {model.weight.sum().item():.4f}")
else:
    state = torch.load(path)  # no map_location: plain torch refuses this file on a machine without CUDA
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    print(f"loaded on {model.weight.device}, sum of the weights {model.weight.sum().item():.4f}")
