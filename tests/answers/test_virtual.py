"""The masquerade on other devices: virtual mps (one queue, sampled memory), xpu (streams of its own), cuda itself."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.virtual.harness import on


def _body() -> None:
    import torch
    from torch import nn

    import torchdevice

    torchdevice.activate(policy="portable")
    target = torch.zeros(1, device="cuda").device

    # Memory: the device's own figures, and a peak that sees what is gone.
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    held = torch.ones(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() - before == 4 << 20
    time.sleep(0.1)
    del held
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() - before >= 4 << 20
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == before
    assert torch.cuda.get_device_properties(0).total_memory == torch.cuda.mem_get_info()[1]

    # Random numbers come from the device's generator, and not from the CPU's.
    torch.cuda.manual_seed(5)
    first, state = torch.randn(4, device="cuda"), torch.cuda.get_rng_state()
    second = torch.randn(4, device="cuda")
    torch.manual_seed(1)
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.randn(4, device="cuda"), second)
    torch.cuda.manual_seed_all(5)
    assert torch.equal(torch.randn(4, device="cuda"), first)
    assert torch.cuda.default_generators[0].device.type == target.type

    # Streams and events.
    stream, start, end = torch.cuda.Stream(), *(torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        start.record()
        time.sleep(0.02)
        end.record()
    torch.cuda.current_stream().wait_event(end)
    torch.cuda.synchronize()
    assert stream.device == target
    assert 19 < start.elapsed_time(end) < 2000

    # A captured step, replayed, is the eager step.
    losses: dict[str, list[float]] = {}
    data = torch.randn(4, 8, 3, device="cuda")
    for way in ("eager", "graph"):
        torch.manual_seed(0)
        model = nn.Linear(3, 1).to("cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        static, graph = torch.zeros(8, 3, device="cuda"), torch.cuda.CUDAGraph()

        def step(model: Any = model, static: Any = static, optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad(set_to_none=False)
            loss = model(static).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss

        losses[way] = []
        if way == "graph":
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            with torch.cuda.graph(graph):
                captured = step()
        for batch in data:
            static.copy_(batch)
            if way == "graph":
                graph.replay()
                losses[way].append(captured.item())
            else:
                losses[way].append(step().item())
    torch.testing.assert_close(losses["graph"], losses["eager"])

    # Mixed precision on the device.
    with torch.cuda.amp.autocast():
        assert torch.is_autocast_enabled("cuda")
        assert torch.is_autocast_enabled(target.type)
        assert (torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")).dtype is torch.float16
    assert not torch.is_autocast_enabled()

    # Code that was told the device's type finds the device's module complete.
    module = getattr(torch, target.type)
    assert module.current_device() == 0
    assert module.max_memory_allocated() >= 0
    assert nn.DataParallel(nn.Linear(2, 2).cuda())(torch.ones(2, 2).cuda()).device == target
    assert torch._utils._get_available_device_type() == target.type
    torchdevice.deactivate()
    assert not torch.cuda.is_available()


@on("mps")
def test_on_virtual_mps() -> None:
    _body()


@on("xpu")
def test_on_virtual_xpu() -> None:
    _body()


@on("cuda:2")
def test_other_namespaces_on_a_cuda_host() -> None:
    import torch

    import torchdevice

    own = torch.cuda.is_available
    torchdevice.activate()
    assert torch.cuda.is_available is own, "torch.cuda is the host's own"
    held = torch.ones(1000, device="mps")
    assert held.device.type == "cuda"
    assert torch.mps.current_allocated_memory() == torch.cuda.memory_allocated() >= 4000
    torch.mps.synchronize()
    torch.mps.manual_seed(3)
    first = torch.rand(2, device="mps")
    torch.mps.manual_seed(3)
    assert torch.equal(first, torch.rand(2, device="mps"))
    start, end = torch.mps.Event(enable_timing=True), torch.mps.Event(enable_timing=True)
    start.record()
    end.record()
    assert start.elapsed_time(end) >= 0
    torch.xpu.set_device(1)
    assert torch.cuda.current_device() == torch.xpu.current_device() == 1
    assert torch.xpu.get_device_properties(0).name == torch.cuda.get_device_name(0)
    assert torch.xpu.memory_allocated(0) == torch.cuda.memory_allocated(0)
    with torch.xpu.stream(torch.xpu.Stream()) as _:
        assert torch.xpu.current_stream().stream_id == torch.cuda.current_stream().stream_id
    assert not torch.xpu.is_available()
    with pytest.raises(torchdevice.CudaOnlyError, match="Metal source cannot run here"):
        torch.mps.compile_shader("kernel void f() {}")


@on("cuda:2")
def test_the_cpu_as_target_of_a_cuda_host() -> None:
    import torch
    from torch import nn

    import torchdevice

    with torchdevice.redirect(target="cpu"):
        torch.manual_seed(0)  # torch's own loop over the real generators
        assert torch.cuda.device_count() == 1
        assert torch.cuda.get_device_name() != "Virtual CUDA device"
        with torchdevice.suspended():
            assert torch.cuda.device_count() == 2
        model, x = nn.Linear(4, 2).cuda(), torch.ones(4, 4).cuda()
        wanted = model(x)
        for parallel in (nn.DataParallel(model), nn.DataParallel(model, [0, 1], output_device=1)):
            torch.testing.assert_close(parallel(x), wanted)
            assert (parallel.device_ids, parallel.output_device, parallel.dim) == ([0], 0, 0)
            assert parallel.src_device_obj == wanted.device
    assert torch.cuda.get_device_name() == "Virtual CUDA device"
    assert torch.zeros(1, device="cuda:1").device.index == 1
    assert nn.DataParallel(nn.Linear(4, 2).cuda()).device_ids == [0, 1]


PARALLEL = {
    "data_parallel": lambda nn, model, x: nn.parallel.data_parallel(model, x, [0, 1]),
    "parallel_apply": lambda nn, model, x: nn.parallel.parallel_apply([model, model], [(x.cuda(),), x.cuda()])[1],
    "pieces": lambda nn, model, x: nn.parallel.gather(
        nn.parallel.parallel_apply(
            nn.parallel.replicate(model, [0, 1]), nn.parallel.scatter((x,), [0, 1]), [{}, {}], [0, 1]
        ),
        0,
    ),
}


def _parallel() -> None:
    import sys

    import torch
    from torch import nn

    import torchdevice

    torchdevice.activate(policy="portable", target="cpu" if torch.cuda.is_available() else None)
    model, x = nn.Linear(4, 2).cuda(), torch.ones(4, 4)  # the helpers move inputs to the device
    wanted = model(x.cuda())
    for name, run in PARALLEL.items():
        torch.testing.assert_close(run(nn, model, x), wanted, msg=name)
    inner = sys.modules["torch.nn.parallel.scatter_gather"]
    assert [len(parts) for parts in inner.scatter_kwargs((x,), {"y": x}, [0, 1])] == [2, 2]
    assert inner.gather([x, x], 0).shape == (8, 4)
    with pytest.raises(AssertionError, match="The number of modules 1 is not equal to the number of inputs 0"):
        nn.parallel.parallel_apply([model], [])

    class Mine(nn.DataParallel):
        pass

    mine = Mine(model, dim=0)
    mine(x).sum().backward()
    assert model.weight.grad is not None
    assert list(mine.state_dict()) == ["module.weight", "module.bias"]


@on("mps")
def test_parallel_helpers_on_mps() -> None:
    _parallel()


@on("cuda:2")
def test_parallel_helpers_on_the_cpu_of_a_cuda_host() -> None:
    _parallel()
