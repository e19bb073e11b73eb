"""peft: a LoRA adapter on a causal language model, trained in bfloat16 autocast, saved, loaded again and merged."""

import json
import tempfile

import numpy as np
import torch
from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

torch.manual_seed(0)
device = "cuda"
config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
base = tempfile.mkdtemp()
GPT2LMHeadModel(config).save_pretrained(base)

model = GPT2LMHeadModel.from_pretrained(base)
peft_config = LoraConfig(
    task_type=TaskType.CAUSAL_LM, inference_mode=False, r=4, lora_alpha=16, lora_dropout=0.0, target_modules=["c_attn"]
)
model = get_peft_model(model, peft_config)
model.print_trainable_parameters()
model = model.to(device)

rng = np.random.RandomState(0)
rows = [{"input_ids": (np.arange(16) * step % 60).tolist()} for step in rng.randint(1, 7, 24)]


def collate(batch):
    ids = torch.tensor([row["input_ids"] for row in batch])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


loader = DataLoader(rows, batch_size=8, shuffle=False, collate_fn=collate, pin_memory=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=0, num_training_steps=len(loader) * 2)
losses = []
for epoch in range(2):
    model.train()
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.detach().float().item())

adapter = tempfile.mkdtemp()
model.save_pretrained(adapter)
again = PeftModel.from_pretrained(GPT2LMHeadModel.from_pretrained(base).to(device), adapter).eval()
model.eval()
ids = torch.tensor([rows[0]["input_ids"][:8]], device="cuda")
with torch.no_grad():
    logits = model(input_ids=ids).logits
    assert torch.allclose(again(input_ids=ids).logits, logits, atol=1e-5)
    merged = again.merge_and_unload()
    assert torch.allclose(merged(input_ids=ids).logits, logits, atol=1e-4)
    print(merged.generate(ids, max_new_tokens=4, do_sample=False, pad_token_id=0).tolist())
devices = sorted({str(parameter.device) for parameter in model.parameters()})
values = losses + logits[0, -1].float().cpu().tolist()[:8]
print("RESULT", json.dumps({"steps": len(losses), "devices": devices, "values": values}))
