"""mamba_ssm's own language model, installed without its CUDA modules: Mamba layers and fused norms, trained."""

import json

import torch
from mamba_ssm.models.config_mamba import MambaConfig
from mamba_ssm.models.mixer_seq_simple import MambaLMHeadModel

torch.manual_seed(0)
config = MambaConfig(d_model=16, n_layer=2, vocab_size=40, fused_add_norm=True)
model = MambaLMHeadModel(config).to("cuda")
tokens = torch.randint(0, 40, (2, 9), generator=torch.Generator().manual_seed(1)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
values = []
for _ in range(3):
    logits = model(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    values.append(loss.item())
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": len(values), "devices": devices, "values": values}))
