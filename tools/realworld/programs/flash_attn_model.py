"""A model that imports flash_attn at its top: causal attention, packed sequences and a cache, trained."""

import json

import torch
from flash_attn import flash_attn_func, flash_attn_varlen_func
from flash_attn.bert_padding import pad_input, unpad_input


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, 8).unbind(2)
        if mask is None:
            y = flash_attn_func(q, k, v, causal=True)
        else:
            packed = torch.stack((q, k, v), dim=2)
            packed, indices, starts, longest, _ = unpad_input(packed, mask)
            y = flash_attn_varlen_func(*packed.unbind(1), starts, starts, longest, longest, causal=True)
            y = pad_input(y, indices, *x.shape[:2])
        return self.out(y.reshape(*x.shape))


torch.manual_seed(0)
model = Attention().to("cuda")
x = torch.randn(3, 10, 32, generator=torch.Generator().manual_seed(1)).to("cuda")
mask = torch.arange(10, device="cuda")[None, :] < torch.tensor([[10], [6], [3]], device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
values = []
for step in range(4):
    out = model(x, mask if step % 2 else None)
    loss = (out - x).square()[mask].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    values.append(loss.item())
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": len(values), "devices": devices, "values": values}))
