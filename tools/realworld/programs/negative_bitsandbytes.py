"""bitsandbytes' 8-bit layer and optimizer on a GPU."""

import json

import bitsandbytes as bnb
import numpy as np
import torch

torch.manual_seed(0)
rng = np.random.RandomState(0)
weight = torch.from_numpy(rng.randn(32, 64).astype(np.float32))
x = torch.from_numpy(rng.randn(8, 64).astype(np.float32)).cuda().half()
layer = bnb.nn.Linear8bitLt(64, 32, bias=False, has_fp16_weights=False, threshold=6.0)
layer.weight = bnb.nn.Int8Params(weight.clone(), requires_grad=False, has_fp16_weights=False)
layer = layer.cuda()
with torch.no_grad():
    out = layer(x)
values = out.float().flatten()[:16].tolist()
print(layer.weight.dtype, out.shape)
devices = sorted({str(parameter.device) for parameter in layer.parameters()})
print("RESULT", json.dumps({"steps": 1, "devices": devices, "values": values}))
