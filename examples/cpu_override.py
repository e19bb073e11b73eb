"""The policy `accelerate` creates every tensor on the accelerator. This program shows three ways to use the CPU.

torchdevice run --virtual mps examples/cpu_override.py
"""

import torch

import torchdevice

torchdevice.activate()  # no effect under `torchdevice run`

print("no device given:", torch.ones(2).device, "| cpu:", torch.ones(2, device="cpu").device)

with torchdevice.cpu_override():  # in this block and this thread
    inside = torch.ones(2, device="cpu")
print("inside cpu_override:", inside.device, "| after it:", torch.ones(2, device="cpu").device)

switched = torch.ones(2, device="cpu:-1")  # one CPU tensor; from here on `cpu` means the CPU
print("cpu:-1:", switched.device, "| cpu now:", torch.ones(2, device="cpu").device)
torch.ones(2, device="cpu:-1")  # ends the override
print("after a second cpu:-1:", torch.ones(2, device="cpu").device)

with torchdevice.suspended():  # plain torch
    print("suspended:", torch.ones(2).device)
