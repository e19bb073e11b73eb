"""A package that needs CUDA: flash_attn is replaced by a stand-in that computes with torch.

torchdevice run examples/attention.py
"""

import torch
from flash_attn import flash_attn_func

torch.manual_seed(0)
query, key, value = torch.randn(3, 2, 32, 4, 16, device="cuda", dtype=torch.bfloat16)  # batch, length, heads, width
given = flash_attn_func(query, key, value, causal=True)

heads_first = (each.transpose(1, 2) for each in (query, key, value))
expected = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2)
print("flash_attn equals torch's attention:", torch.allclose(given, expected, atol=2e-2))
