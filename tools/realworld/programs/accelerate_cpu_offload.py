"""cpu_offload, disk_offload and cpu_offload_with_hook: weights come to the GPU for the forward pass only."""

import json

import torch
from accelerate import cpu_offload, cpu_offload_with_hook, disk_offload, dispatch_model
from accelerate.utils import set_seed


def make():
    set_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16), torch.nn.LayerNorm(16)
    )


inputs = torch.linspace(-1, 1, 32).reshape(2, 16)
outputs = []
with torch.no_grad():
    offloaded = cpu_offload(make(), execution_device=torch.device("cuda", 0))
    outputs.append(offloaded(inputs))
    on_disk = disk_offload(make(), "offload", execution_device=0)
    outputs.append(on_disk(inputs))
    first, hook = cpu_offload_with_hook(make(), execution_device="cuda")
    second, last = cpu_offload_with_hook(make(), execution_device="cuda", prev_module_hook=hook)
    outputs.append(second(first(inputs.to("cuda"))))
    hook.offload()
    last.offload()
    spread = dispatch_model(make(), {"0": 0, "1": 0, "2": "cpu", "3": 0}, main_device=0)
    outputs.append(spread(inputs))
values = [value for output in outputs for value in output.flatten().tolist()[:6]]
devices = sorted({str(outputs[2].device), str(spread[3].weight.device)})
print("RESULT", json.dumps({"steps": len(outputs), "devices": devices, "values": values}))
