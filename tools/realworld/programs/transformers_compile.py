"""torch.compile of a transformers model: forward in half precision, then a compiled training step."""

import json

import torch
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

set_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
config = LlamaConfig(vocab_size=64, max_position_embeddings=64, pad_token_id=0, use_cache=False, **sizes)
model = LlamaForCausalLM(config).to("cuda")
inputs = torch.randint(3, 60, (2, 8), generator=torch.Generator().manual_seed(1)).to("cuda")
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
losses = []
for _ in range(4):
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = compiled(inputs, labels=inputs).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
fast = torch.compile(model.model.layers[0].mlp)
with torch.inference_mode():
    losses.append(fast(torch.ones(2, 3, 32, device="cuda")).float().sum().item())
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": len(losses) - 1, "devices": devices, "values": losses}))
