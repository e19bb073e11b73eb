"""einops: rearrange, reduce, repeat, einsum, pack and layers inside a mixer that is trained on the GPU and compiled."""

import json

import numpy as np
import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce
from torch import nn

torch.manual_seed(0)
rng = np.random.RandomState(0)


class Mixer(nn.Module):
    def __init__(self, patch=4, width=16, patches=16):
        super().__init__()
        self.embed = nn.Sequential(
            Rearrange("b c (h p1) (w p2) -> b (h w) (p1 p2 c)", p1=patch, p2=patch), nn.Linear(patch * patch * 3, width)
        )
        self.tokens = EinMix("b t c -> b u c", weight_shape="t u", bias_shape="u", t=patches, u=patches)
        self.channels = EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=width, d=width)
        self.head = nn.Sequential(Reduce("b t c -> b c", "mean"), nn.Linear(width, 3))

    def forward(self, x):
        x = self.embed(x)
        x = x + torch.nn.functional.gelu(self.tokens(x))
        return self.head(x + torch.nn.functional.gelu(self.channels(x)))


model = Mixer().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for _ in range(8):
    images = torch.from_numpy(rng.rand(8, 16, 16, 3).astype(np.float32)).cuda()
    labels = reduce(images, "b h w c -> b c", "mean").argmax(1)
    loss = nn.functional.cross_entropy(model(rearrange(images, "b h w c -> b c h w")), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

q = torch.from_numpy(rng.randn(2, 8, 4, 6).astype(np.float32)).to("cuda")
scores = einsum(q, q, "b i h d, b j h d -> b h i j").softmax(-1)
packed, shapes = pack([repeat(scores[0, 0, 0], "j -> r j", r=2), scores[0, 0]], "* j")
first, second = unpack(packed, shapes, "* j")
assert torch.equal(second, scores[0, 0])
values = losses + reduce(first, "r j -> j", "sum").cpu().numpy().tolist()
devices = sorted({str(parameter.device) for parameter in model.parameters()})
print("RESULT", json.dumps({"steps": len(losses), "devices": devices, "values": values}))
