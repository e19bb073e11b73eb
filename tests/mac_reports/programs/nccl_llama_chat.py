import tempfile

import torch

torch.distributed.init_process_group("nccl", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
logits = torch.tensor([[0.0, 50.0, 0.0]], device="cuda")
torch.distributed.broadcast(logits, src=0)
token = torch.multinomial(torch.softmax(logits / 0.6, dim=-1), num_samples=1)
assert token.item() == 1
torch.distributed.destroy_process_group()
