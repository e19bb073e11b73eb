"""Memory of tensors on the CPU, counted by the library: the same figures as a walk over the heap, without the walk."""

from __future__ import annotations

import gc
import os
import threading
import warnings
from collections.abc import Callable

import numpy
import pytest
import torch
from torch import nn

from tests.virtual.harness import on
from torchdevice.answers import counted
from torchdevice.virtual import build, cpu_memory

pytestmark = pytest.mark.processes  # a compiler builds the library
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    build.build(build.COUNTING)


def _allocated() -> int:
    return torch.cuda.memory_allocated()


def _begin() -> None:
    import torchdevice

    torchdevice.activate(target="cpu")
    torch.set_num_threads(1)


@on("")
def test_what_is_allocated_and_freed_is_seen_without_a_walk() -> None:
    _begin()
    old = torch.ones(MIB, dtype=torch.uint8)
    before = _allocated()
    assert before == counted.tensor_bytes("cpu")
    counted.tensor_bytes = None  # whoever walks fails
    new = torch.ones(3 * MIB, dtype=torch.uint8)
    view = new[:10]
    assert _allocated() == before + 3 * MIB
    del new
    assert _allocated() == before + 3 * MIB
    del view
    assert _allocated() == before
    del old  # older than the count
    assert _allocated() == before - MIB
    grown = torch.empty(0, dtype=torch.uint8)
    grown.resize_(2 * MIB)
    assert _allocated() == before + MIB


@on("")
def test_the_peak_and_its_reset() -> None:
    _begin()
    kept = torch.ones(MIB, dtype=torch.uint8)
    before = _allocated()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == before
    torch.ones(5 * MIB, dtype=torch.uint8)
    assert (torch.cuda.max_memory_allocated(), _allocated()) == (before + 5 * MIB, before)
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == before
    assert kept.sum() == MIB


@on("")
def test_a_peak_before_the_first_question_is_not_lost() -> None:
    _begin()
    torch.ones(64 * MIB, dtype=torch.uint8)
    assert torch.cuda.max_memory_allocated() >= 48 * MIB


@on("")
def test_a_step_of_training_leaves_what_it_should() -> None:
    _begin()
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    before = _allocated()
    model(torch.randn(32, 64)).sum().backward()
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    gc.collect()
    assert _allocated() - before == parameters  # the gradients
    model.zero_grad()
    assert _allocated() == before


@on("")
def test_memory_of_others_does_not_count() -> None:
    _begin()
    before = _allocated()
    borrowed = torch.from_numpy(numpy.ones(MIB, dtype=numpy.uint8))
    shared = torch.empty(0, dtype=torch.uint8).new_empty(MIB).share_memory_()
    assert _allocated() - before <= 64
    del borrowed, shared
    assert _allocated() == before


@on("")
def test_threads_and_a_forked_child() -> None:
    _begin()
    before = _allocated()

    def work() -> None:
        for size in range(1, 400):
            torch.ones(size * 64, dtype=torch.uint8)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    child = os.fork()
    if not child:
        torch.ones(MIB)
        os._exit(0)
    for thread in threads:
        thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert _allocated() == before


@on("")
def test_operators_that_look_at_how_memory_is_freed() -> None:
    _begin()
    old = torch.arange(6.0)
    _allocated()
    new = torch.arange(6.0)
    for tensor in (old, new):
        clone = tensor._lazy_clone()
        clone.add_(1)
        assert (tensor.tolist(), clone.tolist()) == ([0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6])
        assert torch.equal(torch.from_dlpack(tensor), tensor)
        assert torch.equal(torch.from_numpy(tensor.numpy()), tensor)


def _limit(bytes_beyond: int) -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((_allocated() + bytes_beyond) / total)


# A factory with a device is met in our wrapper; the others raise what the allocator raises.
BEYOND: dict[str, Callable[[torch.Tensor], object]] = {
    "factory": lambda x: torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda"),
    "operator": lambda x: x.repeat(64),
    "method of a tensor": lambda x: x.expand(64, MIB).clone(),
    "gradient": lambda x: x[:4].float().requires_grad_().expand(4 * MIB, 4)[0].sum().backward(),
    "module": lambda x: nn.Linear(4096, 4096),
}


@pytest.mark.parametrize("name", BEYOND)
@on("")
def test_a_limit_is_enforced(name: str) -> None:
    _begin()
    x = torch.ones(MIB, dtype=torch.uint8, device="cuda")
    assert _allocated() >= MIB
    _limit(32 * MIB)
    before = torch.cuda.memory_stats()["num_ooms"]
    with pytest.raises(torch.cuda.OutOfMemoryError, match=r"^CUDA out of memory\. Tried to allocate \d+\.\d\d MiB\. "):
        BEYOND[name](x)
    assert torch.cuda.memory_stats()["num_ooms"] == before + 1
    assert x.repeat(16).numel() == 16 * MIB  # what fits is allocated
    torch.cuda.set_per_process_memory_fraction(1.0)
    assert x.repeat(64).numel() == 64 * MIB


@on("")
def test_a_limit_is_the_sessions() -> None:
    import torchdevice

    _begin()
    x = torch.ones(MIB, dtype=torch.uint8)
    _limit(32 * MIB)
    torchdevice.deactivate()
    assert x.repeat(64).numel() == 64 * MIB
    torchdevice.activate(target="cpu")
    with pytest.raises(torch.cuda.OutOfMemoryError):
        x.repeat(64)


@on("", env={"TORCHDEVICE_DEVICE_COUNT": "2"})
def test_the_smallest_limit_counts_because_all_indices_are_one_cpu() -> None:
    _begin()
    x = torch.ones(MIB, dtype=torch.uint8)
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((_allocated() + 32 * MIB) / total, 1)
    torch.cuda.set_per_process_memory_fraction(0.9, 0)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        x.repeat(64)


@on("", env={"TORCHDEVICE_CACHE": os.devnull})
def test_a_limit_without_a_library_is_one_warning() -> None:
    from torchdevice import TorchDeviceWarning

    _begin()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            torch.cuda.set_per_process_memory_fraction(1e-9)
    (only,) = [each for each in told if each.category is TorchDeviceWarning]
    assert str(only.message).endswith("so the limit is not enforced.\nHint: install a C++ compiler")
    assert torch.cuda.get_per_process_memory_fraction() == 1e-9
    assert torch.ones(MIB, device="cuda").numel() == MIB


class Nothing:
    """A counter that is never there; it notes whether it may be built."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def __call__(self, build_it: bool) -> None:
        self.asked.append(build_it)


def test_it_is_built_when_walks_took_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, start = counted.CpuTensors(), Nothing()
    memory.count_by(start)
    for _ in range(3):
        memory.held()
    assert start.asked == [False]
    monkeypatch.setattr(counted, "WORTH_BUILDING_SECONDS", 0.0)
    for _ in range(3):
        memory.held()
    assert start.asked == [False, True]


def test_a_library_that_cannot_be_built_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_compiler", lambda: "")
    monkeypatch.setenv("TORCHDEVICE_CACHE", os.devnull)
    assert cpu_memory.start(True) is None
