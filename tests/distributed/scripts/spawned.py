"""A DDP program as the tutorials write it: one process per GPU by `mp.spawn`."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def setup(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = sys.argv[1]
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world_size)


def main(rank, world_size):
    setup(rank, world_size)
    assert dist.get_backend() == "nccl"
    assert torch.cuda.current_device() == rank
    torch.manual_seed(0)
    inputs = torch.randn(32, 4)
    dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, pin_memory=True, num_workers=0)
    model = DDP(torch.nn.Linear(4, 1).to(rank), device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for epoch in range(6):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(rank, non_blocking=True), y.to(rank, non_blocking=True)
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    weights = [torch.empty_like(model.module.weight) for _ in range(world_size)]
    dist.all_gather(weights, model.module.weight.detach())
    assert all(torch.equal(weights[0], each) for each in weights)
    if rank == 0:
        print(f"{world_size} processes, {len(losses)} steps, improved {losses[-1] < 0.2 * losses[0]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    world_size = torch.cuda.device_count()
    mp.spawn(main, args=(world_size,), nprocs=world_size, join=True)
    print("ended")
