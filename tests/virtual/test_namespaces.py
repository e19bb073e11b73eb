"""torch.cuda, torch.mps, torch.xpu and torch.accelerator on virtual devices answer as if compiled in."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable

import pytest
import torch
from torch import nn

import torchdevice.virtual
from tests.virtual.harness import on, run_python


@on("cuda:2")
def test_cuda_devices() -> None:
    cuda = torch.cuda
    assert cuda.is_available()
    assert cuda.device_count() == 2
    assert cuda.get_device_capability() == (8, 0)
    assert cuda.is_bf16_supported()
    assert cuda.get_device_properties(1).total_memory == cuda.mem_get_info(1)[1]
    assert cuda.is_initialized()
    with cuda.device(1):
        assert cuda.current_device() == 1
        assert torch.ones(1, device="cuda").device.index == 1
    assert cuda.current_device() == 0
    cuda.set_device("cuda:1")
    assert torch.ones(1).cuda().get_device() == 1
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        cuda.set_device(7)
    assert cuda.get_arch_list()
    assert torch.version.cuda
    assert torch.backends.cudnn.version() > 90000
    torch.backends.cudnn.benchmark = torch.backends.cuda.matmul.allow_tf32 = True
    with cuda.nvtx.range("x"):
        cuda.synchronize()
    cuda.empty_cache()
    cuda.cudart().cudaProfilerStart()
    assert "CUDA" in cuda.memory_summary()
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.accelerator.device_count() == 2


@on("cuda:2")
def test_cuda_streams_and_events() -> None:
    cuda = torch.cuda
    stream, start, end = cuda.Stream(), cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    assert isinstance(stream, torch.Stream)
    start.record()
    with cuda.stream(stream):
        assert cuda.current_stream() == stream
        x = torch.randn(200, 200, device="cuda")
        for _ in range(20):
            x = x @ x.t()
        end.record()
    x.record_stream(stream)
    assert cuda.current_stream() == cuda.default_stream()
    stream.wait_stream(cuda.current_stream())
    stream.wait_event(end)
    end.synchronize()
    assert end.query()
    assert 0 < start.elapsed_time(end) < 60_000
    with pytest.raises(RuntimeError, match="enable_timing"):
        cuda.Event().elapsed_time(end)
    assert cuda.Stream(device=1).device.index == 1


@on("cuda:2")
def test_memory_is_counted_per_device() -> None:
    cuda = torch.cuda
    x = torch.empty(1000, device="cuda:0")
    assert cuda.memory_allocated(0) == 4096
    assert cuda.memory_allocated(1) == 0
    y = x.to("cuda:1") + 1
    assert cuda.memory_allocated(1) == 4096
    assert cuda.max_memory_allocated(1) == 8192
    assert torch.accelerator.memory_allocated(1) == 4096
    del x, y
    gc.collect()
    assert cuda.memory_allocated(0) == cuda.memory_allocated(1) == 0
    assert cuda.memory_stats(0)["allocation.all.current"] == 0
    cuda.reset_peak_memory_stats(1)
    assert cuda.max_memory_allocated(1) == 0


@on("cuda", env={"TORCHDEVICE_VIRTUAL_MEMORY": "1MiB"})
def test_memory_limit_raises_out_of_memory() -> None:
    assert torch.cuda.get_device_properties(0).total_memory == 1 << 20
    with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate 4.00 MiB"):
        torch.empty(1 << 20, device="cuda")
    half = torch.ones(150_000, device="cuda")
    with pytest.raises(torch.cuda.OutOfMemoryError):
        half + half
    with pytest.raises(torch.cuda.OutOfMemoryError):
        half.untyped_storage().resize_(1 << 22)
    assert torch.cuda.memory_stats()["num_ooms"] == 3
    torchdevice.virtual.set_memory_limit(0)
    assert (half + half).sum() == 300_000


def starts_from_the_seed_in_a_state(kind: str) -> None:
    gpu, state = getattr(torch, kind), torch.tensor([7, 4]).view(torch.uint8)
    gpu.manual_seed(7)
    expected = torch.rand(3, device=kind)
    for load in (gpu.set_rng_state, gpu.default_generators[0].set_state):
        load(state)
        assert gpu.initial_seed() == 7
        assert torch.equal(torch.rand(3, device=kind), expected)
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        gpu.set_rng_state(state[:8])


@on("cuda", only_cpu="the accelerator has its own generators")
def test_a_generator_starts_from_the_seed_in_a_state_of_cuda() -> None:
    starts_from_the_seed_in_a_state("cuda")


@on("xpu", only_cpu="the accelerator has its own generators")
def test_a_generator_starts_from_the_seed_in_a_state_of_xpu() -> None:
    starts_from_the_seed_in_a_state("xpu")


@on("cuda")
def test_dropout_draws_from_the_device() -> None:
    """Its schema has no generator, so the kernel cannot be told where to draw."""
    on_cpu, on_cuda = torch.ones(64), torch.ones(64, device="cuda")
    torch.manual_seed(0)
    expected = [torch.rand(3), nn.functional.dropout(on_cpu), torch.rand(3)]
    torch.manual_seed(0)
    untouched = torch.rand(3)
    torch.manual_seed(0)
    state = torch.cuda.get_rng_state()
    for _ in range(2):
        torch.cuda.set_rng_state(state)
        drawn = [torch.rand(3, device="cuda"), nn.functional.dropout(on_cuda), torch.rand(3, device="cuda")]
        assert all(torch.equal(a, b.cpu()) for a, b in zip(expected, drawn, strict=True))
    assert torch.equal(torch.rand(3), untouched)


@on("cuda")
def test_a_machine_without_memory_is_a_device_without_memory() -> None:
    for fail in (
        lambda: torch.empty(1 << 50, device="cuda"),
        lambda: torch.ones(1, device="cuda").expand(1 << 50) + 1,
        lambda: torch.ones(1, device="cuda").expand(1 << 50).clone(),
        lambda: torch.UntypedStorage(1 << 52, device="cuda"),
    ):
        with pytest.raises(torch.cuda.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate 4194304.00 GiB"):
            fail()
    assert torch.cuda.memory_stats()["num_ooms"] == 4
    with pytest.raises(RuntimeError, match="size") as other:
        torch.ones(2, device="cuda") + torch.ones(3, device="cuda")
    assert not isinstance(other.value, torch.OutOfMemoryError)


@on("mps")
def test_a_mac_without_memory_says_so_in_its_words() -> None:
    with pytest.raises(RuntimeError, match="MPS backend out of memory") as raised:
        torch.empty(1 << 50, device="mps")
    assert not isinstance(raised.value, torch.OutOfMemoryError)


@on("cuda")
def test_training_leaves_no_memory_behind() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).cuda()
    optim = torch.optim.Adam(net.parameters())
    for _ in range(3):
        net(torch.randn(4, 8, device="cuda")).sum().backward()
        optim.step()
        optim.zero_grad()
    s = torch.eye(4, device="cuda").to_sparse() @ torch.ones(4, 4, device="cuda")
    torch.quantize_per_tensor(s, 0.1, 0, torch.qint8).dequantize()
    s.resize_(100)
    del net, optim, s
    gc.collect()
    assert torch.cuda.memory_allocated() == 0


@on("cuda:2")
def test_random_state() -> None:
    torch.manual_seed(3)
    assert torch.equal(torch.rand(4, device="cuda").cpu(), torch.rand(4, generator=torch.Generator().manual_seed(3)))
    state = torch.cuda.get_rng_state()
    first = torch.rand(4, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(first, torch.rand(4, device="cuda"))
    torch.cuda.manual_seed_all(1)
    assert torch.equal(torch.rand(2, device="cuda:0").cpu(), torch.rand(2, device="cuda:1").cpu())
    assert len(torch.cuda.get_rng_state_all()) == 2
    torch.cuda.default_generators[0].manual_seed(9)
    again = torch.Generator("cuda").manual_seed(9)
    assert torch.equal(torch.randn(3, device="cuda"), torch.randn(3, device="cuda", generator=again))
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        torch.rand(2, device="cuda", generator=torch.Generator())
    with torch.random.fork_rng(devices=[0]):
        torch.rand(2, device="cuda")


@on("cuda")
def test_graphs_replay_into_the_same_tensors() -> None:
    x, steps = torch.ones(3, device="cuda"), torch.zeros(1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        y = (x * 2).relu_() + 1
        steps += 1
    assert steps.item() == 0  # captured work is not carried out
    x.fill_(5)
    graph.replay()
    graph.replay()
    assert y.tolist() == [11.0] * 3
    assert steps.item() == 2
    net = nn.Linear(3, 2).cuda()
    graphed = torch.cuda.make_graphed_callables(net, (torch.randn(4, 3, device="cuda"),))
    data = torch.randn(4, 3, device="cuda")
    out = graphed(data)
    out.sum().backward()
    assert torch.allclose(out, nn.functional.linear(data, net.weight, net.bias))
    assert torch.allclose(net.weight.grad, data.sum(0).expand(2, 3))


@on("cuda")
def test_legacy_tensor_types() -> None:
    t = torch.cuda.FloatTensor([1, 2])
    assert t.is_cuda
    assert t.dtype == torch.float32
    assert isinstance(t, torch.cuda.FloatTensor)
    assert not isinstance(t, torch.cuda.HalfTensor)
    assert torch.cuda.LongTensor(2, 3).shape == (2, 3)
    assert t.type() == "torch.cuda.FloatTensor"
    assert t.type("torch.cuda.HalfTensor").dtype == torch.float16
    assert t.type(torch.FloatTensor).device.type == "cpu"
    assert torch.ones(2).type(torch.cuda.DoubleTensor).is_cuda
    assert torch.cuda.FloatTensor(t).data_ptr() == t.data_ptr()
    for other in (t.cpu(), t.half()):
        with pytest.raises(TypeError, match=r"expected TensorOptions\(dtype=float, device=cuda"):
            torch.cuda.FloatTensor(other)
    with pytest.raises(RuntimeError, match="legacy constructor expects device type: cuda but device type: cpu"):
        torch.cuda.FloatTensor(3, device="cpu")
    torch.set_default_tensor_type("torch.cuda.HalfTensor")
    assert torch.ones(1).dtype == torch.float16
    assert torch.tensor([1.0]).is_cuda
    assert torch.Tensor([1.0]).is_cuda
    assert torch.Tensor(2, 3).dtype == torch.float16
    assert torch.compile(lambda x: torch.Tensor(x), backend="eager")(t).is_cuda
    torch.set_default_tensor_type(torch.FloatTensor)
    assert not torch.ones(1).is_cuda
    assert not torch.Tensor([1.0]).is_cuda


@on("mps", only_cpu="the accelerator has its own allocator")
def test_mps_namespace() -> None:
    mps, backend = torch.mps, torch.backends.mps
    assert backend.is_available()
    assert backend.is_built()
    assert backend.is_macos13_or_newer()
    assert mps.device_count() == 1
    x = torch.ones(1000, device="mps")
    assert mps.current_allocated_memory() == 4000
    assert mps.driver_allocated_memory() >= 4000
    assert mps.recommended_max_memory() > 0
    start, end = mps.Event(enable_timing=True), mps.Event(enable_timing=True)
    start.record()
    end.record()
    assert start.elapsed_time(end) >= 0
    state = mps.get_rng_state()
    first = torch.rand(3, device="mps")
    mps.set_rng_state(state)
    assert torch.equal(first, torch.rand(3, device="mps"))
    mps.manual_seed(1)
    mps.synchronize()
    mps.empty_cache()
    mps.set_per_process_memory_fraction(0.5)
    with mps.profiler.profile():
        x.sum()
    assert torch.accelerator.current_accelerator().type == "mps"
    for make in (
        lambda: torch.ones(1, dtype=torch.float64, device="mps"),
        lambda: torch.ones(1, dtype=torch.float64).to("mps"),
        lambda: x.double(),
    ):
        with pytest.raises(TypeError, match="the MPS framework doesn't support float64"):
            make()


@on("xpu")
@pytest.mark.skipif(not hasattr(torch.xpu, "set_per_process_memory_fraction"), reason="torch 2.9 lacks it")
def test_xpu_refuses_a_share_of_memory_that_does_not_exist() -> None:
    for share, said in (0.0, "0"), (-0.5, "-0.5"), (1.5, "1.5"):
        with pytest.raises(ValueError, match=rf"^invalid fraction:{said}\. Please set within \(0, 1\]\.$"):
            torch.xpu.set_per_process_memory_fraction(share)
    torch.xpu.set_per_process_memory_fraction(1.0)


@on("xpu:2", only_cpu="the accelerator has its own allocator")
def test_xpu_namespace() -> None:
    xpu = torch.xpu
    assert xpu.is_available()
    assert xpu.device_count() == 2
    x = torch.ones(1000, device="xpu:1")
    assert xpu.memory_allocated(1) == 4096
    assert xpu.memory_allocated(0) == 0
    assert xpu.get_device_name(1)
    with xpu.device(1), xpu.stream(xpu.Stream()):
        assert (x + 1).device == torch.device("xpu:1")
    start, end = xpu.Event(enable_timing=True), xpu.Event(enable_timing=True)
    start.record()
    end.record()
    assert start.elapsed_time(end) >= 0
    xpu.manual_seed_all(3)
    assert torch.equal(torch.rand(2, device="xpu:0").cpu(), torch.rand(2, device="xpu:1").cpu())
    with torch.no_grad():
        assert nn.LSTM(3, 4).to("xpu")(torch.randn(2, 1, 3, device="xpu"))[0].device.type == "xpu"


@on("cuda:2")
def test_a_stream_of_another_device_is_left_with_its_device() -> None:
    with torch.cuda.Stream(device=1):
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == 0
    assert torch.cuda.current_stream(1).stream_id == 0


@on("cuda:2")
def test_one_figure_for_one_question() -> None:
    torch.cuda.set_per_process_memory_fraction(0.5, 0)
    for index in range(2) if hasattr(torch.accelerator, "get_memory_info") else ():  # since 2.10
        assert torch.cuda.mem_get_info(index) == torch.accelerator.get_memory_info(index)
    assert torch.cuda.mem_get_info(0)[1] < torch.cuda.mem_get_info(1)[1]
    torch.cuda.set_per_process_memory_fraction(0.0, 0)
    with pytest.raises(torch.OutOfMemoryError):
        torch.zeros(10, device="cuda:0")
    torch.zeros(10, device="cuda:1")
    assert torch.cuda.get_device_properties(1) is torch.cuda.get_device_properties(1)
    t = torch.ones(2, device="cuda:1")
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    copies = torch.nn.parallel.comm.broadcast(t, [0, 1, 1])
    assert [str(copy.device) for copy in copies] == ["cuda:0", "cuda:1", "cuda:1"]
    assert copies[1] is t
    assert copies[2] is not t


@on("xpu")
def test_a_virtual_device_adds_no_public_names() -> None:
    done = run_python("-c", "import torch; print(*sorted(n for n in dir(torch.xpu) if n[0] != '_'))")
    assert sorted(n for n in dir(torch.xpu) if n[0] != "_") == done.stdout.split()


@on("cuda")
def test_no_function_of_a_build_for_cuda_is_left() -> None:
    left = [
        name
        for name, value in vars(torch._C).items()
        if name.startswith("_cuda_") and isinstance(value, types.BuiltinFunctionType)
    ]
    assert left == []
    with pytest.raises(torchdevice.CudaOnlyError, match="does not support this function"):
        torch._C._cuda_isHistoryEnabledForDevice()


@on("cuda")
def test_what_cuda_computes_by_cudnns_name() -> None:
    x, weight = torch.randn(2, 3, 8, 8, device="cuda"), torch.randn(4, 3, 3, 3, device="cuda", requires_grad=True)
    ours = torch.cudnn_convolution(x, weight, (1, 1), (1, 1), (1, 1), 1, False, False, False)
    expected = torch.nn.functional.conv2d(x, weight, padding=1)
    torch.testing.assert_close(ours, expected)
    gradients = [torch.autograd.grad(result.square().sum(), weight)[0] for result in (ours, expected)]
    torch.testing.assert_close(*gradients)
    back = torch.cudnn_convolution_transpose(ours, weight, (1, 1), (0, 0), (1, 1), (1, 1), 1, False, False, False)
    torch.testing.assert_close(back, torch.nn.functional.conv_transpose2d(ours, weight, padding=1))


# Requests for a device that does not exist.
NINTH: dict[str, Callable[[], object]] = {
    "set_device": lambda: torch.cuda.set_device(9),
    "device": lambda: torch.cuda.device(9).__enter__(),
    "zeros": lambda: torch.zeros(1, device="cuda:9"),
    "empty": lambda: torch.empty(1, device="cuda:9"),
    "empty_like": lambda: torch.empty_like(torch.ones(2), device="cuda:9"),
    "to": lambda: torch.ones(1).to("cuda:9"),
    "cuda": lambda: torch.ones(1).cuda(9),
    "module": lambda: torch.nn.Linear(1, 1).to("cuda:9"),
    "current_stream": lambda: torch.cuda.current_stream(9),
    "synchronize": lambda: torch.cuda.synchronize(9),
    "Stream": lambda: torch.cuda.Stream(9),
    "accelerator": lambda: torch.accelerator.set_device_index(9),
}


@on("cuda:2")
def test_errors_of_cudas_functions_are_accelerator_errors() -> None:
    for name, ask in NINTH.items():
        with pytest.raises(torch.AcceleratorError, match="CUDA error: invalid device ordinal") as raised:
            ask()
        assert raised.value.error_code == 101, name  # cudaErrorInvalidDevice
    assert torch.cuda.current_device() == 0
    with pytest.raises(RuntimeError, match="invalid") as refused:
        torch.Generator("cuda:9")
    assert type(refused.value) is RuntimeError


@on("cuda")
def test_errors_of_captures_are_accelerator_errors() -> None:
    x, graph = torch.ones(3, device="cuda"), torch.cuda.CUDAGraph()
    refusal = pytest.raises(torch.AcceleratorError, match="not permitted when stream is capturing")
    with refusal as refused, torch.cuda.graph(graph):
        x.sum().item()
    assert refused.value.error_code == 900  # cudaErrorStreamCaptureUnsupported


@on("cuda:2")
def test_errors_of_events_are_accelerator_errors() -> None:
    first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with pytest.raises((RuntimeError, ValueError), match="must be recorded") as early:
        first.elapsed_time(second)
    assert not isinstance(early.value, torch.AcceleratorError)
    first.record()
    with torch.cuda.device(1):
        second.record()
    with pytest.raises(torch.AcceleratorError, match="CUDA error: invalid resource handle") as apart:
        first.elapsed_time(second)
    assert apart.value.error_code == 400  # cudaErrorInvalidResourceHandle


@on("xpu")
def test_errors_of_xpu_are_not_those_of_cuda() -> None:
    with pytest.raises(RuntimeError, match="The device index is out of range") as raised:
        torch.zeros(1, device="xpu:9")
    assert type(raised.value) is RuntimeError
