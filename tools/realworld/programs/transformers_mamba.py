"""Mamba and Mamba 2 of transformers without their CUDA packages: both trained, and both generate."""

import json

import torch
from transformers import Mamba2Config, Mamba2ForCausalLM, MambaConfig, MambaForCausalLM, set_seed

shared = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
kinds = [
    (MambaForCausalLM, MambaConfig(**shared)),
    (Mamba2ForCausalLM, Mamba2Config(num_heads=4, head_dim=16, n_groups=2, chunk_size=8, **shared)),
]
tokens = torch.randint(3, 60, (2, 12), generator=torch.Generator().manual_seed(1)).to("cuda")
values = []
for kind, config in kinds:
    set_seed(0)
    model = kind(config).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        loss = model(tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    values += [float(token) for token in model.generate(tokens[:1, :4], max_new_tokens=4, do_sample=False)[0, 4:]]
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": len(values), "devices": devices, "values": values}))
