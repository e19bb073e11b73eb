import tempfile

import torch

if not torch.distributed.is_initialized():
    torch.distributed.init_process_group("nccl", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
torch.cuda.set_device(0)
torch.manual_seed(1)
model = torch.nn.Linear(4, 4).to("cuda").half()
tokens = torch.full((1, 4), 2, dtype=torch.long, device="cuda")
assert model(tokens.half()).dtype == torch.float16
torch.distributed.destroy_process_group()
