import torch

gpu_ranks = [0]
torch.cuda.set_device(gpu_ranks[0])
torch.cuda.manual_seed(666)
batch = torch.tensor([1, 2, 3]).to("cuda")
assert batch.sum().item() == 6
