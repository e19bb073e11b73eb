"""attn_implementation="sdpa" against "eager": padded batch, forward and gradients, sdpa_kernel."""

import json

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
config = LlamaConfig(vocab_size=64, max_position_embeddings=64, pad_token_id=0, **sizes)
inputs = torch.randint(3, 60, (2, 9), generator=torch.Generator().manual_seed(1)).to("cuda")
mask = torch.ones_like(inputs)
mask[1, :4] = 0
labels = inputs.clone()
labels[1, :5] = -100
values = []
for attention in ("sdpa", "eager"):
    set_seed(0)
    model = LlamaForCausalLM._from_config(config, attn_implementation=attention).to("cuda")
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
        loss = model(inputs, attention_mask=mask, labels=labels).loss
    loss.backward()
    values += [loss.item(), model.model.layers[0].self_attn.q_proj.weight.grad.norm().item()]
assert abs(values[0] - values[2]) < 1e-4
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": 2, "devices": devices, "values": values}))
