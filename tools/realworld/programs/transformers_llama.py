"""Llama generate with grouped attention and rotary positions; then with a static cache."""

import json

import torch
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

set_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=None,
)
model = LlamaForCausalLM(config).eval().cuda()
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
static = model.generate(
    inputs,
    attention_mask=mask,
    max_new_tokens=6,
    do_sample=False,
    cache_implementation="static",
    disable_compile=True,
)
values += static[:, 7:].flatten().float().tolist()

devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": greedy.shape[1] - 7, "devices": devices, "values": values}))
