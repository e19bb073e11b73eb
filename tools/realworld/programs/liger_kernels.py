"""A small model on Liger's Triton kernels: RMSNorm, SwiGLU and cross-entropy, trained."""

import json

import torch
from liger_kernel.ops.swiglu import LigerSiLUMulFunction
from liger_kernel.transformers import LigerCrossEntropyLoss, LigerRMSNorm


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = torch.nn.Embedding(40, 32), LigerRMSNorm(32)
        self.gate, self.up, self.head = (torch.nn.Linear(32, size) for size in (48, 48, 40))
        self.down = torch.nn.Linear(48, 32)

    def forward(self, tokens):
        x = self.embed(tokens)
        y = self.norm(x)
        return self.head(x + self.down(LigerSiLUMulFunction.apply(self.gate(y), self.up(y))))


torch.manual_seed(0)
model = Model().to("cuda")
tokens = torch.randint(0, 40, (2, 9), generator=torch.Generator().manual_seed(1)).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
values = []
for _ in range(3):
    loss = LigerCrossEntropyLoss()(model(tokens[:, :-1]).reshape(-1, 40), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    values.append(loss.item())
devices = sorted({str(p.device) for p in model.parameters()})
print("RESULT", json.dumps({"steps": len(values), "devices": devices, "values": values}))
