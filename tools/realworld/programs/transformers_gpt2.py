"""GPT-2 generate with its cache: greedy, beams, padded prompts, scores."""

import json

import torch
from transformers import GPT2Config, GPT2LMHeadModel, set_seed

set_seed(0)
config = GPT2Config(
    vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=2, pad_token_id=0, bos_token_id=1, eos_token_id=None
)
model = GPT2LMHeadModel(config).eval().cuda()
inputs = torch.randint(3, 60, (2, 7), generator=torch.Generator().manual_seed(1)).cuda()
mask = torch.ones_like(inputs)
mask[1, :3] = 0

greedy = model.generate(inputs, attention_mask=mask, max_new_tokens=10, do_sample=False, use_cache=True)
beams = model.generate(inputs, attention_mask=mask, max_new_tokens=6, do_sample=False, num_beams=3)
scored = model.generate(
    inputs, attention_mask=mask, max_new_tokens=4, do_sample=False, output_scores=True, return_dict_in_generate=True
)
values = scored.scores[-1][:, :6].flatten().tolist() + greedy[:, 7:].flatten().float().tolist()
values += beams[:, 7:].flatten().float().tolist()

devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": greedy.shape[1] - 7, "devices": devices, "values": values}))
