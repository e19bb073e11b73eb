import tempfile

import torch

torch.distributed.init_process_group("nccl", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
torch.set_default_tensor_type(torch.cuda.HalfTensor)
cache = torch.zeros((1, 8, 2, 4)).cuda()
cache[:, 0] = torch.ones(2, 4)
assert cache.dtype == torch.float16
assert cache.float().sum().item() == 8.0
torch.distributed.destroy_process_group()
