"""BERT masked-language training by hand: torch.cuda.amp autocast and GradScaler, scheduler, gradient clipping."""

import json

import torch
from transformers import BertConfig, BertForMaskedLM, get_linear_schedule_with_warmup, set_seed

set_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
config = BertConfig(vocab_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)
model = BertForMaskedLM(config).to(device)
rows = torch.randint(5, 64, (32, 12), generator=torch.Generator().manual_seed(1))
loader = torch.utils.data.DataLoader(rows, batch_size=8, pin_memory=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scheduler = get_linear_schedule_with_warmup(optimizer, 2, 8)
scaler = torch.cuda.amp.GradScaler()
losses = []
for epoch in range(2):
    for batch in loader:
        batch = batch.to(device, non_blocking=True)
        labels = batch.clone()
        batch[:, ::4] = 4
        with torch.cuda.amp.autocast():
            loss = model(input_ids=batch, labels=labels).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(loss.item())
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": len(losses), "devices": devices, "values": losses}))
