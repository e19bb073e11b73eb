"""A model that imports flash_attn's kernels at its top."""

import torch
from flash_attn import flash_attn_func

q, k, v = (torch.randn(2, 16, 4, 32, device="cuda", dtype=torch.float16) for _ in range(3))
print(flash_attn_func(q, k, v, causal=True).shape)
