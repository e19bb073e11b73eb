"""Whisper: log-mel features of a synthetic sound, training in float16 autocast, generate with its caches."""

import json

import numpy as np
import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration, set_seed

set_seed(0)
config = WhisperConfig(
    vocab_size=64,
    num_mel_bins=16,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    max_source_positions=100,
    max_target_positions=32,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=3,
    suppress_tokens=None,
    begin_suppress_tokens=None,
)
extractor = WhisperFeatureExtractor(feature_size=16, chunk_length=2)
sound = np.sin(np.arange(32000) / 16000 * 440 * 2 * np.pi).astype(np.float32)
features = extractor(sound, sampling_rate=16000, return_tensors="pt", device="cuda").input_features.to("cuda")
model = WhisperForConditionalGeneration(config).to("cuda")
labels = torch.arange(4, 12, device="cuda").unsqueeze(0)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
for _ in range(3):
    with torch.autocast(device_type="cuda", dtype=torch.float16):
        loss = model(input_features=features, labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
tokens = model.generate(features, max_new_tokens=8, min_new_tokens=8, do_sample=False)
losses += [features.mean().item(), *tokens.flatten().float().tolist()]
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": 3, "devices": devices, "values": losses}))
