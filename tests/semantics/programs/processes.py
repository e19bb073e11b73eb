"""Memory that processes share, and process groups of one process."""

import multiprocessing
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from tests.semantics.program import gives

_FORK = multiprocessing.get_context("fork")


def _add_one(tensor):
    tensor += 1


def _child(target, *arguments):
    process = mp.get_context("fork").Process(target=target, args=arguments)
    process.start()
    process.join(30)
    return process.exitcode


def share_memory_is_told(d):
    x = torch.zeros(2)
    before = x.is_shared()
    return [before, x.share_memory_() is x, x.is_shared()]


def a_child_writes_into_shared_memory(d):
    x = torch.zeros(2).share_memory_()
    code = _child(_add_one, x)
    return [code, x.tolist()]


def a_child_does_not_write_into_ordinary_memory(d):
    x = torch.zeros(2)
    return [_child(_add_one, x), x.tolist()]


def a_shared_module(d):
    m = nn.Linear(1, 1, bias=False)
    m.share_memory()
    with torch.no_grad():
        m.weight.fill_(2)
    code = _child(_add_one, m.weight.data)
    return [code, m.weight.tolist()]


def a_tensor_comes_through_a_queue(d):
    context = mp.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=_answer, args=(queue,))
    process.start()
    process.join(30)
    return queue.get()


def _answer(queue):
    queue.put(torch.arange(3.0).cpu().numpy().tolist())


def _square(x):
    return x * x


def a_pool_computes(d):
    with _FORK.Pool(1) as pool:
        return pool.map(_square, [1, 2, 3])


def _compute_on_the_host(connection):
    connection.send(torch.ones(2, 2).sum().item())


def a_child_computes_on_the_host(d):
    mine, theirs = _FORK.Pipe()
    process = _FORK.Process(target=_compute_on_the_host, args=(theirs,))
    process.start()
    answered = mine.poll(30)
    value = mine.recv() if answered else None
    process.join(30)
    return [value, process.exitcode]


def sharing_strategies(d):
    return [
        mp.get_sharing_strategy() in mp.get_all_sharing_strategies(),
        mp.get_start_method(allow_none=True) in (None, "fork", "spawn", "forkserver"),
    ]


def _group(use):
    def program(d):
        backend = "nccl" if d == "cuda" else "gloo"
        with tempfile.TemporaryDirectory() as folder:
            dist.init_process_group(
                backend, init_method=f"file://{os.path.join(folder, 'store')}", rank=0, world_size=1
            )
            try:
                return use(d)
            finally:
                dist.destroy_process_group()

    return program


def _collectives(d):
    x = torch.ones(2, device=d)
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    parts = [torch.zeros(2, device=d)]
    dist.all_gather(parts, x * 3)
    dist.barrier()
    whole = torch.zeros(2, device=d)
    dist.all_gather_into_tensor(whole, x)
    scattered = torch.zeros(2, device=d)
    dist.reduce_scatter_tensor(scattered, x)
    return [x.tolist(), parts[0].tolist(), whole.tolist(), scattered.tolist()]


def _objects(d):
    things = [None]
    dist.all_gather_object(things, {"rank": dist.get_rank(), "x": [1, 2]})
    sent = ["hello"]
    dist.broadcast_object_list(sent, 0)
    return [things, sent]


def _parallel(d):
    m = nn.Linear(2, 1, bias=False).to(d)
    nn.init.ones_(m.weight)
    wrapped = nn.parallel.DistributedDataParallel(m, device_ids=[0] if d == "cuda" else None)
    wrapped(torch.ones(3, 2, device=d)).sum().backward()
    with wrapped.no_sync():
        wrapped(torch.ones(3, 2, device=d)).sum().backward()
    return [m.weight.grad.tolist(), list(wrapped.state_dict())]


def _asked(d):
    return [
        dist.is_initialized(),
        dist.get_rank(),
        dist.get_world_size(),
        dist.get_backend() == ("nccl" if d == "cuda" else "gloo"),
    ]


def _waiting(d):
    x = torch.ones(2, device=d)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    return [x.tolist(), work.is_completed()]


def _subgroups(d):
    group = dist.new_group([0])
    x = torch.full((1,), 2.0, device=d)
    dist.all_reduce(x, op=dist.ReduceOp.MAX, group=group)
    return [x.tolist(), dist.get_world_size(group)]


def _norms(d):
    m = nn.SyncBatchNorm(2).to(d)
    if d == "cpu":
        m = nn.BatchNorm1d(2)
    return m(torch.tensor([[1.0, 2.0], [3.0, 6.0]], device=d)).tolist()


ROWS = {
    "group_collectives": _group(_collectives),
    "group_objects": _group(_objects),
    "group_data_parallel": _group(_parallel),
    "group_is_asked": _group(_asked),
    "group_waiting": _group(_waiting),
    "group_subgroups": _group(_subgroups),
    "group_sync_batch_norm": _group(_norms),
}


@gives([True, True])
def backends_are_there(d):
    return [dist.is_available(), dist.is_nccl_available()]
