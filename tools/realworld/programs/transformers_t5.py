"""T5 encoder and decoder: a training step with labels, then generate with beams and its two caches."""

import json

import torch
from transformers import T5Config, T5ForConditionalGeneration, set_seed

set_seed(0)
config = T5Config(
    vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0, decoder_start_token_id=0
)
model = T5ForConditionalGeneration(config).cuda()
generator = torch.Generator().manual_seed(1)
source = torch.randint(3, 60, (2, 9), generator=generator).cuda(non_blocking=True)
target = torch.randint(3, 60, (2, 5), generator=generator).cuda(non_blocking=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for _ in range(4):
    loss = model(input_ids=source, labels=target).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
model.eval()
tokens = model.generate(source, max_new_tokens=8, num_beams=2, do_sample=False, min_new_tokens=8)
losses += tokens.flatten().float().tolist()
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": 4, "devices": devices, "values": losses}))
