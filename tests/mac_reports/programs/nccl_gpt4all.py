import os
import tempfile

import torch

os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
store = torch.distributed.FileStore(tempfile.mktemp(), 1)
torch.distributed.init_process_group(backend="nccl", store=store, rank=0, world_size=1)
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.distributed.barrier()
assert torch.ones(1, device=device).item() == 1.0
torch.distributed.destroy_process_group()
