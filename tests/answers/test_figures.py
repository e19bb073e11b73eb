"""Functions that return one figure of memory: the same as in torch's table, without making the table."""

from __future__ import annotations

import inspect
import threading

import pytest
import torch

import torchdevice
from tests.virtual.harness import on
from torchdevice.answers import counted
from torchdevice.answers.counted import SampledPeak
from torchdevice.answers.real import Real

FIGURES = {
    "memory_allocated": "allocated_bytes.all.current",
    "max_memory_allocated": "allocated_bytes.all.peak",
    "memory_reserved": "reserved_bytes.all.current",
    "max_memory_reserved": "reserved_bytes.all.peak",
}
MIB = 1 << 20


def _compare(*namespaces: str, steady: int = 64 * MIB) -> torch.Tensor:
    """`steady`: the memory of the process, which would differ between two queries."""
    counted.resident = lambda: steady
    counted._high_water = lambda: 2 * steady
    torchdevice.activate()
    held = torch.ones(MIB, device="cuda")
    torch.ones(MIB, device="cuda").add_(1)  # freed: the peak is above the current value
    for namespace in namespaces:
        module = getattr(torch, namespace)
        for name, key in FIGURES.items():
            wanted = module.memory_stats()[key]
            assert wanted >= held.nbytes
            for arguments in ((), (None,), (0,), ("cuda:0",), (torch.device("cuda"),), (held.device,)):
                assert getattr(module, name)(*arguments) == wanted, (namespace, name, arguments)
            assert getattr(module, name)(device=0) == wanted
    return held


def _without_table() -> None:
    Real.usage = None  # type: ignore[assignment,method-assign]
    for name in FIGURES:
        assert getattr(torch.cuda, name)() > 0
    with pytest.raises(TypeError):
        torch.cuda.memory_stats()


@on("")
def test_on_the_cpu() -> None:
    held = _compare("cuda", "xpu")
    for name in FIGURES:  # torch.accelerator is replaced too if there is no accelerator
        assert getattr(torch.accelerator, name)() == getattr(torch.cuda, name)()
    _without_table()
    del held


@on("")
def test_a_query_is_in_the_peak_if_nothing_counts() -> None:
    counted.cpu_tensors.count_by(lambda may_build: None)
    counted.resident = counted._high_water = lambda: 0
    torchdevice.activate(target="cpu")
    held = torch.empty(64 * MIB, dtype=torch.uint8)  # never written, so the process does not grow
    assert torch.cuda.memory_allocated() >= held.nbytes
    del held
    assert torch.cuda.memory_allocated() < 64 * MIB <= torch.cuda.max_memory_allocated()


@on("mps")
def test_on_mps_the_first_query_starts_the_sampling() -> None:
    torchdevice.activate()
    torch.cuda.memory_allocated()
    assert "torchdevice-memory" in {each.name for each in threading.enumerate()}
    held = _compare("cuda")
    _without_table()
    del held


@on("xpu")
def test_on_xpu_each_figure_is_one_call() -> None:
    held = _compare("cuda")
    tables, of_torch = [], torch.xpu.memory.memory_stats
    torch.xpu.memory.memory_stats = lambda *given, **named: tables.append(1) or of_torch(*given, **named)
    for number, name in enumerate(FIGURES, 1):
        getattr(torch.cuda, name)()
        assert len(tables) == number, name
    assert torch.cuda.max_memory_allocated() > torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated() >= held.nbytes


@pytest.mark.parametrize("name", FIGURES)
def test_torch_asks_for_nothing_but_the_device(name: str) -> None:
    """If a later torch adds a parameter, `memory.single_figures` needs it too."""
    for module in (torch.cuda, torch.xpu):
        assert list(inspect.signature(getattr(module, name)).parameters) == ["device"]


def test_a_value_from_before_a_reset_is_no_peak() -> None:
    """The thread that samples may be reading a figure while the peak is reset."""
    reading, is_reset, again = threading.Event(), threading.Event(), threading.Event()
    this = threading.current_thread()

    def read() -> int:
        if threading.current_thread() is this:
            return 1
        if is_reset.is_set():
            again.set()
            return 1
        reading.set()
        is_reset.wait(60)
        return 100

    peak = SampledPeak(read, lambda: 1)
    assert peak.allocated(1) == 1
    assert reading.wait(60)
    peak.reset(1)
    is_reset.set()
    assert again.wait(60)
    assert peak.allocated(1) == 1
