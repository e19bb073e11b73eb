"""Memory of a virtual device is the host's: `share_memory_()` shares it with forked and spawned processes."""

from __future__ import annotations

import gc
import os
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest
import torch

from tests.cli.harness import torchdevice, write
from tests.virtual.harness import on

PROGRAM = """
import os, torch, torch.multiprocessing as mp
from torch import nn

def add(model, counter):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    counter += 7

def trained(context):
    model, counter = nn.Linear(2, 2).share_memory(), torch.zeros(3)[1:].share_memory_()
    before = [p.detach().clone() for p in model.parameters()]
    child = mp.get_context(context).Process(target=add, args=(model, counter))
    child.start()
    child.join()
    moved = [(p.detach() - b).sum().item() for p, b in zip(model.parameters(), before)]
    return child.exitcode, [round(x, 4) for x in moved], counter.tolist(), counter.is_shared()

if __name__ == "__main__":
    counter = torch.zeros(1).share_memory_()
    child = os.fork()
    if not child:
        counter += 5
        os._exit(0)
    os.waitpid(child, 0)
    print(counter.item(), trained("fork"), trained("spawn"), flush=True)
"""
SHARED = "5.0 (0, [4.0, 2.0], [7.0, 7.0], True) (0, [4.0, 2.0], [7.0, 7.0], True)\n"


@pytest.mark.virtual
@pytest.mark.parametrize("policy", ["accelerate", "portable"])
@pytest.mark.parametrize("device", ["cuda", "mps:real", "xpu"])
def test_children_see_what_others_write(device: str, policy: str, tmp_path: Path) -> None:
    write(tmp_path, {"hogwild.py": PROGRAM})
    done = torchdevice("run", "--virtual", device, "--policy", policy, "hogwild.py", cwd=tmp_path)
    assert done.stdout == SHARED, done.stderr


def _segments() -> int:
    return sum(name.startswith(f"torch_{os.getpid()}_") for name in os.listdir("/dev/shm"))


def _share_and_drop(kind: str) -> None:
    tensor = torch.arange(4.0, device=kind)
    assert tensor.share_memory_() is tensor
    assert (tensor.tolist(), tensor.is_shared(), _segments()) == ([0.0, 1.0, 2.0, 3.0], True, 1)
    assert tensor.share_memory_() is tensor
    assert _segments() == 1
    assert torch.empty(0, device=kind).share_memory_().numel() == 0
    del tensor
    gc.collect()
    assert _segments() == 0


@on("cuda", only_cpu="the memory of an accelerator is not shared")
def test_shared_memory_of_cuda_is_given_back() -> None:
    _share_and_drop("cuda")


@on("mps", only_cpu="the memory of an accelerator is not shared")
def test_shared_memory_of_mps_is_given_back() -> None:
    _share_and_drop("mps")


def _sent_and_freed(device: str) -> None:
    """The receiver opens the memory after the sender has freed its tensor, and twice if it was sent twice."""
    before = _segments()
    tensor = torch.arange(1000.0).to(device)
    sent = [bytes(ForkingPickler.dumps(tensor)) for _ in range(2)]
    del tensor
    gc.collect()
    received = [ForkingPickler.loads(each) for each in sent]
    assert [each.device.type for each in received] == [device, device]
    assert all(torch.equal(each.cpu(), torch.arange(1000.0)) for each in received)
    del received
    gc.collect()
    assert _segments() == before


@on("cuda", only_cpu="the memory of an accelerator is not shared")
def test_a_tensor_of_cuda_arrives_after_the_sender_freed_it() -> None:
    _sent_and_freed("cuda")


@on("mps", only_cpu="the memory of an accelerator is not shared")
def test_a_tensor_of_mps_arrives_after_the_sender_freed_it() -> None:
    _sent_and_freed("mps")
