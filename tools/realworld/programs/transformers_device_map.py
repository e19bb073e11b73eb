"""from_pretrained(device_map="cuda", torch_dtype=torch.float16) and device_map="auto"; generation."""

import json

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, set_seed

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
    eos_token_id=None,
)
LlamaForCausalLM(config).save_pretrained("tiny")

model = AutoModelForCausalLM.from_pretrained("tiny", device_map="cuda", torch_dtype=torch.float16)
assert model.dtype == torch.float16
inputs = torch.arange(1, 9).reshape(1, 8).to(model.device)
with torch.inference_mode():
    logits = model(inputs).logits
tokens = model.generate(inputs, max_new_tokens=8, do_sample=False)

spread = AutoModelForCausalLM.from_pretrained("tiny", device_map="auto")
with torch.inference_mode():
    whole = spread(torch.arange(1, 9).reshape(1, 8).to("cuda")).logits
values = logits[0, -1, :8].float().tolist() + whole[0, -1, :8].tolist()
devices = sorted({str(p.device) for p in [*model.parameters(), *spread.parameters()]})
print("RESULT", json.dumps({"steps": tokens.shape[1] - 8, "devices": devices, "values": values}))
