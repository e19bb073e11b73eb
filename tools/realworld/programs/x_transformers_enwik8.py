"""x-transformers: the enwik8 example's training loop with .cuda(), gradient accumulation, rotary, generate."""

import json

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from x_transformers import Decoder, TransformerWrapper
from x_transformers.autoregressive_wrapper import AutoregressiveWrapper

NUM_BATCHES, BATCH_SIZE, GRADIENT_ACCUMULATE_EVERY, SEQ_LEN, GENERATE_LENGTH = 6, 4, 2, 32, 8
torch.manual_seed(0)


def cycle(loader):
    while True:
        yield from loader


def decode_tokens(tokens):
    return "".join(chr(max(32, token)) for token in tokens)


model = TransformerWrapper(
    num_tokens=128,
    max_seq_len=SEQ_LEN,
    attn_layers=Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True, attn_flash=True, ff_glu=True),
)
model = AutoregressiveWrapper(model)
model.cuda()

text = "in the beginning there was a small language model that learned to count: one two three four. " * 20
data_train = torch.from_numpy(np.frombuffer(text.encode(), dtype=np.uint8).copy())


class TextSamplerDataset(Dataset):
    def __init__(self, data, seq_len):
        super().__init__()
        self.data, self.seq_len, self.rng = data, seq_len, np.random.RandomState(0)

    def __getitem__(self, index):
        start = self.rng.randint(0, self.data.size(0) - self.seq_len - 1)
        full_seq = self.data[start : start + self.seq_len + 1].long()
        return full_seq.cuda()

    def __len__(self):
        return self.data.size(0) // self.seq_len


train_loader = cycle(DataLoader(TextSamplerDataset(data_train, SEQ_LEN), batch_size=BATCH_SIZE, drop_last=True))
optim = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for i in range(NUM_BATCHES):
    model.train()
    for _ in range(GRADIENT_ACCUMULATE_EVERY):
        loss = model(next(train_loader))
        (loss / GRADIENT_ACCUMULATE_EVERY).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optim.step()
    optim.zero_grad()
    losses.append(loss.item())
    print(f"training loss: {loss.item()}")

model.eval()
prompt = data_train[:16].long().cuda()
sample = model.generate(prompts=prompt[None], seq_len=GENERATE_LENGTH, temperature=0.0, cache_kv=True)
print(decode_tokens(sample[0].tolist()))
devices = sorted({str(parameter.device) for parameter in model.parameters()})
print("RESULT", json.dumps({"steps": len(losses), "devices": devices, "values": losses}))
