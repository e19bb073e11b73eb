import tempfile

import torch

torch.distributed.init_process_group("nccl", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1).cuda(), device_ids=[0])
model(torch.ones(3, 2, device="cuda")).sum().backward()
assert model.module.weight.grad.tolist() == [[3.0, 3.0]]
torch.distributed.destroy_process_group()
