import tempfile

import torch

store = f"file://{tempfile.mktemp()}"
torch.distributed.init_process_group("nccl", init_method=store, rank=0, world_size=1)
total = torch.ones(3, device="cuda")
torch.distributed.all_reduce(total)
assert total.sum().item() == 3.0
torch.distributed.destroy_process_group()
