"""attn_implementation="flash_attention_2" for Llama, Qwen2, Mistral and BERT: padded batches, two steps of each."""

import json

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    set_seed,
)

sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
shared = {"vocab_size": 64, "max_position_embeddings": 64, "pad_token_id": 0, **sizes}
kinds = [
    (LlamaForCausalLM, LlamaConfig(num_key_value_heads=2, **shared)),
    (Qwen2ForCausalLM, Qwen2Config(num_key_value_heads=2, **shared)),
    (MistralForCausalLM, MistralConfig(num_key_value_heads=2, sliding_window=4, **shared)),
    (BertForMaskedLM, BertConfig(attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0, **shared)),
]
inputs = torch.randint(3, 60, (2, 9), generator=torch.Generator().manual_seed(1)).to("cuda")
mask = torch.ones_like(inputs)
mask[1, :4] = 0
labels = inputs.masked_fill(mask == 0, -100)
values = []
for kind, config in kinds:
    set_seed(0)
    model = kind._from_config(config, attn_implementation="flash_attention_2").to("cuda")
    assert model.config._attn_implementation == "flash_attention_2"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        loss = model(inputs, attention_mask=mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values.append(loss.item())
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": len(values), "devices": devices, "values": values}))
