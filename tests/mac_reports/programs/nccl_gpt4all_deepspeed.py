import tempfile

import torch

torch.distributed.init_process_group("nccl", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
torch.cuda.set_device(torch.distributed.get_rank())
gathered = [torch.zeros(2, device="cuda")]
torch.distributed.all_gather(gathered, torch.tensor([1.0, 2.0], device="cuda"))
assert gathered[0].tolist() == [1.0, 2.0]
torch.distributed.destroy_process_group()
