"""A torchrun program that saves a checkpoint every step and goes on from the last one.

torchrun … resumable.py FOLDER [STEP]        rank 1 kills itself at STEP of the first attempt
"""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
device = torch.device("cuda", local_rank)
dist.init_process_group("nccl", timeout=timedelta(seconds=120))
rank, world_size = dist.get_rank(), dist.get_world_size()
snapshot = Path(sys.argv[1]) / "snapshot.pt"
dies_at = int(sys.argv[2]) if len(sys.argv) > 2 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" else None

torch.manual_seed(0)
inputs = torch.randn(16, 4, device=device)
part = inputs.chunk(world_size)[rank]
model = DDP(torch.nn.Linear(4, 1).to(device), device_ids=[local_rank])
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
first = 0
if snapshot.exists():
    saved = torch.load(snapshot, map_location=f"cuda:{local_rank}", weights_only=True)
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["step"]
    print(f"rank {rank} goes on at step {first}", flush=True)

for step in range(first, 8):
    if step == dies_at and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    loss = (model(part) - part.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    if rank == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
        torch.save(state, snapshot.with_suffix(".new"))
        snapshot.with_suffix(".new").replace(snapshot)
    dist.barrier()

total = loss.detach().clone()
dist.all_reduce(total, op=dist.ReduceOp.AVG)
if rank == 0:
    print(f"final loss {total.item():.6f} of {world_size} processes", flush=True)
dist.destroy_process_group()
# torch with gloo, also without us, sometimes ends with SIGABRT while the interpreter shuts down ("terminate called
# without an active exception"). What is tested here has been done by now.
os._exit(0)
