"""DistributedDataParallel with NCCL, one process per GPU.

torchdevice run -m torch.distributed.run --standalone --nproc-per-node 2 examples/ddp.py
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank = dist.get_rank()
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)

torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 1).cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank + 1)  # every process has its own data
for _ in range(30):
    x = torch.randn(32, 8, device="cuda")
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

weights = [torch.zeros(1, 8, device="cuda") for _ in range(dist.get_world_size())]
dist.all_gather(weights, model.module.weight.detach())
if rank == 0:
    print(f"{dist.get_world_size()} processes, loss {loss.item():.3f}")
    print("all have the same weights:", all(torch.equal(each, weights[0]) for each in weights))
dist.destroy_process_group()
