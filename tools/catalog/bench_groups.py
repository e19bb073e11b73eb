"""Objects of torch.distributed for expressions: the group of this one process, two ranks by a fork, what is sharded."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import nn

SECONDS_FOR_A_PEER = 10


class Groups:
    """A part of `bench.Bench`, which has the device, the tensors and the files."""

    device: str
    folder: str
    T: Callable[..., Any]
    net: Callable[..., nn.Module]
    deep: Callable[..., nn.Module]
    file: Callable[..., str]

    def group(self) -> Any:
        """The process group of this one process."""
        from torch import distributed as dist

        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        return dist.group.WORLD

    def mesh(self, *shape: int) -> Any:
        """A mesh of this one process."""
        self.group()
        names = ("all", "more")[: len(shape) or 1]
        return torch.distributed.init_device_mesh(self.device, shape or (1,), mesh_dim_names=names)

    def gloo(self) -> Any:
        """The backend behind the group."""
        return self.group()._get_backend(torch.device("cpu"))

    def pair(self, first: Callable[[], Any], second: Callable[[], Any]) -> Any:
        """What `first` gives here, as rank 0, while a fork of this process does `second`, as rank 1."""
        from torch import distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()
        path = self.file()
        child = os.fork()
        try:
            store = dist.FileStore(path, 2)
            timeout = timedelta(seconds=SECONDS_FOR_A_PEER)
            dist.init_process_group("gloo", store=store, rank=int(child == 0), world_size=2, timeout=timeout)
            return (second if child == 0 else first)()
        finally:
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            dist.destroy_process_group()

    def hooked(self, hook: Callable[..., Any], state: Any = None) -> Any:
        """The gradient of a replicated layer whose bucket went through a communication hook."""
        self.group()
        model = nn.parallel.DistributedDataParallel(self.net())
        model.register_comm_hook(state, hook)
        model(self.T(2, 3)).sum().backward()
        return model.module.weight.grad

    def zero(self, **options: Any) -> Any:
        """A sharded optimizer with gradients to step on."""
        from torch.distributed.optim import ZeroRedundancyOptimizer

        self.group()
        layer = self.net()
        layer(self.T(4, 3)).sum().backward()
        optimizer = ZeroRedundancyOptimizer(layer.parameters(), torch.optim.SGD, lr=0.1, **options)
        optimizer.consolidate_state_dict()
        return optimizer

    def sharded(self) -> Any:
        """A module in flat shards, and its optimizer after a step."""
        from torch.distributed.fsdp import FullyShardedDataParallel

        self.group()
        model = FullyShardedDataParallel(self.net(), device_id=torch.device(self.device))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(self.T(2, 3)).sum().backward()
        optimizer.step()
        return model, optimizer

    def piped(self) -> Any:
        """A module traced into one stage of a pipeline."""
        self.group()
        return torch.distributed.pipelining.pipeline(self.net(), (self.T(2, 3),))

    def stage(self, place: int = 0, of: int = 1) -> Any:
        """A stage of a pipeline."""
        self.group()
        return torch.distributed.pipelining.PipelineStage(self.net(), place, of, torch.device(self.device))

    def kept(self, **state: Any) -> str:
        """The folder of a distributed checkpoint."""
        self.group()
        path = self.file() + ".dcp"
        torch.distributed.checkpoint.save(state or {"a": self.T(3)}, checkpoint_id=path)
        return path

    def shared(self) -> str:
        """The folder of a checkpoint in Hugging Face's form."""
        self.group()
        path = self.file() + ".hf"
        writer = torch.distributed.checkpoint.HuggingFaceStorageWriter(path)
        torch.distributed.checkpoint.save({"a": self.T(3)}, storage_writer=writer)
        return path

    def planned(self, **state: Any) -> Any:
        """A planner of a load, its plan, and what it reads from."""
        from torch.distributed import checkpoint

        reader = checkpoint.FileSystemReader(self.kept(**state))
        planner = checkpoint.DefaultLoadPlanner()
        planner.set_up_planner(state or {"a": self.T(3) * 0}, reader.read_metadata(), True)
        reader.set_up_storage_reader(reader.read_metadata(), True)
        return planner, planner.create_local_plan(), reader

    def planning(self, **state: Any) -> Any:
        """A planner of a save, its plan, and what it writes to."""
        from torch.distributed import checkpoint

        self.group()
        writer = checkpoint.FileSystemWriter(self.file() + ".dcp")
        writer.set_up_storage_writer(True)
        planner = checkpoint.DefaultSavePlanner()
        planner.set_up_planner(state or {"a": self.T(3)}, is_coordinator=True)
        return planner, writer.prepare_local_plan(planner.create_local_plan()), writer

    def remote(self) -> Any:
        """An optimizer over references of torch.distributed.rpc to this one process."""
        from torch.distributed import rpc

        if not rpc.api._is_current_rpc_agent_set():
            place = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{self.file()}")
            rpc.init_rpc("only", rank=0, world_size=1, rpc_backend_options=place)
        return torch.distributed.optim.DistributedOptimizer(torch.optim.SGD, [rpc.RRef(self.T(3, grad=True))], lr=0.1)
