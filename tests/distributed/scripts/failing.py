"""What goes wrong in distributed programs. The first argument says which: each process prints what it met."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

dist.init_process_group("nccl", timeout=timedelta(seconds=6))
rank = dist.get_rank()
tensor = torch.ones(4, device="cuda", dtype=torch.int16 if sys.argv[1] == "emulated" else torch.float32)
dist.all_reduce(tensor)
started = time.monotonic()
try:
    if sys.argv[1] == "mismatched" and rank == 1:
        dist.all_reduce(torch.ones(4096, device="cuda"))
    elif sys.argv[1] in ("missing", "emulated") and rank == 1:
        time.sleep(12)
    elif sys.argv[1] == "dead" and rank == 1:
        os._exit(3)
    else:
        dist.all_reduce(tensor)
    print(f"rank {rank} met nothing", flush=True)
except RuntimeError as error:
    print(f"rank {rank} after {time.monotonic() - started:.0f} s: {str(error).splitlines()[0]}", flush=True)
    os._exit(1)
