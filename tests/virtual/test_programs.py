"""What real programs do around the device: processes, collectives, compilers, profilers, loaders, threads."""

from __future__ import annotations

import io
import multiprocessing
import threading
from collections import OrderedDict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchdevice
from tests.virtual.harness import on, run_python
from torchdevice.translate.loading import dataset_for_workers

DDP = """
import os, sys, torch, torchdevice.virtual
torchdevice.virtual.install("cuda", 2)
import torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

def work(rank, backend, store):
    torch.cuda.set_device(rank)
    dist.init_process_group(backend, init_method="file://" + store, rank=rank, world_size=2)
    assert dist.get_backend() == backend
    t = torch.full((4,), rank + 1.0, device="cuda")
    dist.all_reduce(t)
    assert t.tolist() == [3.0] * 4 and t.is_cuda
    parts = [torch.zeros(2, device="cuda") for _ in range(2)]
    dist.all_gather(parts, torch.full((2,), float(rank), device="cuda"))
    assert parts[1].tolist() == [1, 1] and parts[1].is_cuda
    pending = dist.broadcast(torch.ones(2, device="cuda"), 0, async_op=True)
    pending.wait()
    if rank == 0:
        dist.send(torch.ones(2, device="cuda"), 1)
    else:
        got = torch.zeros(2, device="cuda")
        dist.recv(got, 0)
        assert got.sum() == 2
    objects = [None, None]
    dist.all_gather_object(objects, {"rank": rank})
    assert objects[1]["rank"] == 1
    dist.barrier()
    torch.manual_seed(0)
    net = DistributedDataParallel(torch.nn.Linear(4, 1).cuda(), device_ids=[rank])
    optim = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(3):
        torch.manual_seed(10 * step + rank)
        loss = net(torch.randn(8, 4, device="cuda")).pow(2).mean()
        optim.zero_grad()
        loss.backward()
        optim.step()
    weights = [torch.zeros(1, 4, device="cuda") for _ in range(2)]
    dist.all_gather(weights, net.module.weight.detach())
    assert torch.equal(weights[0], weights[1])
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, args=(sys.argv[1], sys.argv[2]), nprocs=2)
    print("trained")
"""


@pytest.mark.virtual
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_collectives_and_ddp(tmp_path, backend: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(DDP)
    done = run_python(str(script), backend, str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "trained" in done.stdout


QUEUE = """
import torch, torchdevice.virtual
torchdevice.virtual.install("cuda")
import torch.multiprocessing as mp

def work(queue, done):
    tensor = queue.get()
    assert tensor.is_cuda
    tensor += 1
    done.put(tensor.sum().item())

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, done = context.Queue(), context.Queue()
    tensor = torch.zeros(4, device="cuda")
    child = context.Process(target=work, args=(queue, done))
    child.start()
    queue.put(tensor)
    assert done.get(timeout=60) == 4
    child.join()
    assert tensor.tolist() == [1, 1, 1, 1]  # the child wrote to the same memory
    print("shared")
"""


@pytest.mark.virtual
def test_tensors_are_shared_between_processes(tmp_path) -> None:
    script = tmp_path / "share.py"
    script.write_text(QUEUE)
    done = run_python(str(script))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "shared" in done.stdout


@on("cuda:2")
def test_data_parallel() -> None:
    net = nn.DataParallel(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).cuda())
    out = net(torch.randn(8, 3).cuda())
    out.sum().backward()
    assert out.shape == (8, 2)
    assert out.device == torch.device("cuda:0")
    assert net.module[0].weight.grad is not None
    assert torch.cuda.max_memory_allocated(1) > 0


@on("cuda")
def test_torchscript() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.rnn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.LSTM(16, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rnn(self.norm(self.conv(x)).relu().flatten(2))[0]

    net, x = Net().cuda().eval(), torch.randn(2, 3, 6, 6, device="cuda")
    traced = torch.jit.trace(net, x)
    assert torch.allclose(traced(x), net(x))
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    assert torch.allclose(torch.jit.load(file)(x), net(x))
    scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 4), nn.GELU()).cuda())
    for _ in range(3):
        scripted(torch.randn(2, 3, device="cuda")).sum().backward()


@on("mps")
def test_tracing_and_compiling_on_mps() -> None:
    net, x = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()).to("mps"), torch.randn(1, 1, 5, 5, device="mps")
    assert torch.allclose(torch.jit.trace(net, x)(x), net(x))
    assert torch.allclose(torch.compile(net)(x), net(x))


@on("cuda")
def test_profiler_checkpoint_and_extensions() -> None:
    from torch.profiler import ProfilerActivity, profile
    from torch.utils import cpp_extension
    from torch.utils.checkpoint import checkpoint

    assert cpp_extension.CUDA_HOME is None
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as found:
        net = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 3)).cuda()
        x = torch.randn(2, 3, device="cuda", requires_grad=True)
        for reentrant in (True, False):
            checkpoint(net, x, use_reentrant=reentrant).sum().backward()
    assert "aten::addmm" in found.key_averages().table()
    with torch.cuda.amp.autocast():
        assert (x @ x.t()).dtype == torch.float16


@on("cuda:2", env={"RANK": "0", "LOCAL_RANK": "1", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"})
def test_a_device_mesh_takes_the_device_of_the_local_rank() -> None:
    from torch.distributed.device_mesh import init_device_mesh

    assert not torch.cuda.is_initialized()
    init_device_mesh("cuda", (1,))
    assert torch.cuda.current_device() == 1
    torch.distributed.destroy_process_group()


def _a_profile_of_the_device_alone(activity: torch.profiler.ProfilerActivity, device: str) -> None:
    with torch.profiler.profile(activities=[activity]) as found:
        torch.ones(2, device=device) + 1
    assert "aten::add" in found.key_averages().table()


@on("cuda")
def test_a_profile_of_cuda_alone_has_its_operators() -> None:
    _a_profile_of_the_device_alone(torch.profiler.ProfilerActivity.CUDA, "cuda")


@on("xpu")
def test_a_profile_of_xpu_alone_has_its_operators() -> None:
    _a_profile_of_the_device_alone(torch.profiler.ProfilerActivity.XPU, "xpu")


@pytest.mark.parametrize("name", ["preferred_linalg_library", "preferred_blas_library"])
@on("cuda")
def test_a_preferred_library_is_accepted(name: str) -> None:
    choose = getattr(torch.backends.cuda, name)
    before, asked = choose(), {"preferred_linalg_library": "magma", "preferred_blas_library": "cublaslt"}[name]
    try:
        assert choose(asked).name.lower() == asked
        assert choose().name.lower() == asked
        with pytest.raises(RuntimeError, match="Unknown input value"):
            choose("nothing")
        x = torch.eye(3, device="cuda") * 2
        assert torch.equal((torch.linalg.inv(x) @ x).cpu(), torch.eye(3))
    finally:
        choose(before)


@on("cuda", only_cpu="a forked process cannot use an accelerator")
def test_threads_forks_and_loaders() -> None:
    def child(queue: multiprocessing.Queue) -> None:
        queue.put(torch.ones(2, device="cuda").sum().item())

    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    assert queue.get(timeout=60) == 2
    process.join()
    found = []

    def work() -> None:
        x = torch.randn(4, 4, device="cuda", requires_grad=True)
        (x @ x).sum().backward()
        found.append(x.grad.is_cuda)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
    data = TensorDataset(torch.randn(8, 3))
    for method in ("fork", "spawn"):
        loader = DataLoader(data, 4, shuffle=True, num_workers=1, pin_memory=True, multiprocessing_context=method)
        for (x,) in loader:
            assert x.is_pinned()
            assert x.to("cuda", non_blocking=True).is_cuda


MAKING = """
import torch
from torch.utils.data import DataLoader, Dataset

class Made(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return torch.full((2,), i, device="cuda"), torch.ones(1).device.type

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        batches = list(DataLoader(Made(), 2, num_workers=1, multiprocessing_context=method))
        assert [x.device for x, _ in batches] == [torch.device("cuda", 0)] * 2, batches
        assert sum((x + torch.ones(2, device="cuda")).sum().item() for x, _ in batches) == 20
        assert {kind for _, kinds in batches for kind in kinds} == {"cpu"}
"""


@pytest.mark.virtual
@pytest.mark.parametrize("policy", [(), ("--policy", "portable"), ("--policy", "accelerate")])
def test_workers_send_what_they_make_on_the_device(policy: tuple[str, ...], tmp_path: Path) -> None:
    """Without a session too, as on CUDA. A request without a device stays on the CPU."""
    (tmp_path / "making.py").write_text(MAKING, encoding="utf-8")
    session = ("-m", "torchdevice", "run", "-q", *policy) if policy else ()
    done = run_python(*session, str(tmp_path / "making.py"), env={"TORCHDEVICE_VIRTUAL": "cuda"})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(find_spec("torch._native") is None, reason=f"torch {torch.__version__} has no such kernels")
@on("cuda")
def test_kernels_that_torch_has_in_triton_are_switched_off() -> None:
    """With Triton installed, torch multiplies outer products by a kernel that needs the real thing."""
    import torch.backends.python_native as kernels

    assert all(kernels.is_dsl_disabled(language) for language in kernels.available_dsls)
    a, b = torch.ones(2, 3, 1, device="cuda"), torch.ones(2, 1, 4, device="cuda")
    assert torch.bmm(a, b).sum().item() == 24


class Record(dict[str, Any]):
    """A class of a program: a batch with attributes."""


class Pair(NamedTuple):
    first: Any
    second: Any


@on("mps")
def test_what_workers_get_keeps_its_type() -> None:
    """Under `accelerate` a dataset that was made without a device is on the accelerator, which a worker cannot use."""
    with torchdevice.redirect(policy="accelerate"):
        parameter = nn.Parameter(torch.ones(2))
        frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        leaf = torch.ones(2, requires_grad=True)
        items = [OrderedDict(a=torch.ones(2)), Record(a=torch.ones(2)), Pair(torch.ones(2), 0), parameter, frozen, leaf]
        sent = dataset_for_workers(items)
        assert [type(each) for each in sent] == [type(each) for each in items]
        assert [each.requires_grad for each in sent[3:]] == [True, False, True]
        assert {each.device.type for each in (sent[0]["a"], sent[1]["a"], sent[2].first, *sent[3:])} == {"cpu"}
        assert all(each.is_leaf for each in sent[3:])
        loader = DataLoader(items, batch_size=None, num_workers=1, timeout=60)
        assert [type(each) for each in loader][:3] == [OrderedDict, Record, Pair]
