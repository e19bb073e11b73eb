"""ViT: an image processor over random pictures, fine-tuning with .cuda(), inference in half precision."""

import json

import numpy as np
import torch
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor, set_seed

set_seed(0)
config = ViTConfig(
    image_size=32,
    patch_size=8,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    num_labels=3,
)
processor = ViTImageProcessor(size={"height": 32, "width": 32})
pictures = list(np.random.RandomState(0).randint(0, 255, (6, 32, 32, 3), dtype=np.uint8))
pixels = processor(images=pictures, return_tensors="pt")["pixel_values"].cuda()
labels = torch.tensor([0, 1, 2, 0, 1, 2]).cuda()
model = ViTForImageClassification(config).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = model(pixel_values=pixels, labels=labels).loss
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.half().eval()
with torch.no_grad():
    logits = model(pixel_values=pixels.half()).logits
losses += logits.float().softmax(-1).flatten().tolist()
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": 5, "devices": devices, "values": losses}))
