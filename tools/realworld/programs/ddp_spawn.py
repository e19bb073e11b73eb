"""DDP by mp.spawn over every GPU: nccl, set_device, device_ids, DistributedSampler, rank 0 saves, all load."""

import json
import os
import socket
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup(rank, world_size):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world_size)


def cleanup():
    dist.destroy_process_group()


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_checkpoint(rank, world_size, path):
    setup(rank, world_size)
    torch.manual_seed(0)
    rng = np.random.RandomState(0)
    inputs = torch.from_numpy(rng.randn(64, 10).astype(np.float32))
    labels = torch.from_numpy(rng.randn(64, 5).astype(np.float32))
    dataset = TensorDataset(inputs, labels)
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, seed=0)
    loader = DataLoader(dataset, batch_size=16 // world_size, sampler=sampler, pin_memory=True)

    model = ToyModel().to(rank)
    ddp_model = DDP(model, device_ids=[rank], output_device=rank)
    loss_fn = nn.MSELoss()
    optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.05)

    if rank == 0:
        torch.save(ddp_model.state_dict(), path)
    dist.barrier(device_ids=[rank])
    map_location = {"cuda:%d" % 0: "cuda:%d" % rank}  # noqa: UP031 - as the tutorial writes it
    ddp_model.load_state_dict(torch.load(path, map_location=map_location, weights_only=True))

    losses = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x, y in loader:
            x, y = x.to(rank, non_blocking=True), y.cuda(rank, non_blocking=True)
            optimizer.zero_grad()
            loss = loss_fn(ddp_model(x), y)
            loss.backward()
            optimizer.step()
            reduced = loss.detach().clone()
            dist.all_reduce(reduced, op=dist.ReduceOp.SUM)
            losses.append((reduced / world_size).item())
    gathered = [torch.zeros(1, device=rank) for _ in range(world_size)]
    dist.all_gather(gathered, torch.tensor([float(rank)], device=rank))
    assert [int(value) for value in gathered] == list(range(world_size))
    if rank == 0:
        devices = sorted({str(parameter.device) for parameter in ddp_model.parameters()})
        print("RESULT", json.dumps({"steps": len(losses), "devices": devices, "values": losses}), flush=True)
    cleanup()


def run_demo(demo_fn, world_size):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(free.getsockname()[1])
    path = os.path.join(tempfile.mkdtemp(), "model.checkpoint")
    mp.spawn(demo_fn, args=(world_size, path), nprocs=world_size, join=True)


if __name__ == "__main__":
    n_gpus = torch.cuda.device_count()
    assert n_gpus >= 1, f"Requires at least 1 GPU to run, but got {n_gpus}"
    run_demo(demo_checkpoint, n_gpus)
