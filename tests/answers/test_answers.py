"""What user code sees on a CPU: who is told that CUDA is there, devices, streams, events, memory, random numbers."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import torchdevice
from tests.torches import BUILT_FOR_CUDA
from tests.virtual.harness import on
from torchdevice._torch.core import SHOWS_SAVED_TENSORS, RealDevice
from torchdevice.answers.devices import CUDA_VERSION
from torchdevice.answers.rows import SURFACE, Kind
from torchdevice.session import session

pytestmark = pytest.mark.usefixtures("active")


# --- who is answered --------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_user_code_is_told_that_cuda_is_there_and_torch_is_not() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 1
    assert torch._utils._get_available_device_type() is None
    assert torch.utils.collect_env.get_env_info().is_cuda_available != "True"


def test_a_program_that_knows_several_kinds_of_device_finds_one() -> None:
    """Whichever it asks for first: its branch for CUDA is the one that uses the device most."""
    kinds = {"cuda": torch.cuda, "mps": torch.backends.mps, "xpu": torch.xpu}
    for order in itertools.permutations(kinds):
        assert [kind for kind in order if kinds[kind].is_available()] == ["cuda"]
    assert not torch.mps.is_available()


@on("mps")
def test_code_for_mps_alone_finds_it_on_a_virtual_one() -> None:
    assert torch.backends.mps.is_available()
    assert torch.backends.mps.is_built()
    torchdevice.activate(policy="portable")
    device = "mps" if torch.backends.mps.is_available() else "cpu"
    assert torch.zeros(1, device=device).device.type == "mps"


def test_a_build_for_cuda_without_a_driver_has_no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a torch names cuda as its accelerator: asked for its module, it must not get that of the CPU."""
    monkeypatch.setattr(torch._C, "_accelerator_getAccelerator", lambda: RealDevice("cuda"))
    assert torch.get_device_module("cuda") is torch.cpu
    assert not torchdevice.original("torch.accelerator.is_available")()
    assert torchdevice.original("torch.accelerator.current_accelerator")(check_available=True) is None


def test_packages_with_cuda_only_code_get_the_truth(tmp_path: Path) -> None:
    asked = {}
    for package in ("bitsandbytes", "somebody"):
        folder = tmp_path / "site-packages" / package
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("import torch\nthere = torch.cuda.is_available()\n")
        spec = importlib.util.spec_from_file_location(package, folder / "__init__.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        asked[package] = module.there
    assert asked == {"bitsandbytes": False, "somebody": True}


def test_the_switch(python: Callable[..., Any]) -> None:
    code = "import torchdevice, torch\ntorchdevice.activate(target='cpu')\n"
    code += "print(torch.cuda.is_available(), torch.zeros(1, device='cuda').device, torch.version.cuda)"
    assert python(code, TORCHDEVICE_MASQUERADE="0").stdout.split() == ["False", "cpu", str(BUILT_FOR_CUDA)]
    assert python(code, TORCHDEVICE_MASQUERADE="1").stdout.split() == ["True", "cpu", BUILT_FOR_CUDA or CUDA_VERSION]


def test_suspended_and_after_deactivation_it_is_plain_torch() -> None:
    held = torch.cuda.is_available
    with torchdevice.suspended():
        assert not torch.cuda.is_available()
    torchdevice.deactivate()
    assert not held()


def test_answers_are_counted_per_place() -> None:
    session._masked.audience.ledger.clear()  # type: ignore[union-attr]
    for _ in range(3):
        torch.cuda.synchronize()
    torch.cuda.Stream()
    counts = {record.api: (calls, record.site.file == __file__) for record, calls in session.simulated().items()}
    assert counts == {"torch.cuda.synchronize": (3, True), "torch.cuda.Stream": (1, True)}
    assert torchdevice.status().simulated_calls == 4


# --- devices ----------------------------------------------------------------------------------------------------


def test_one_description_of_the_device() -> None:
    found = torch.cuda.get_device_properties("cuda:0")
    assert found.name == torch.cuda.get_device_name(0) == torch.cuda.get_device_name()
    assert (found.major, found.minor) == torch.cuda.get_device_capability(torch.device("cuda"))
    assert torch.cuda.is_bf16_supported() == (found.major >= 8) == torch.cuda.is_tf32_supported()
    assert found.total_memory == psutil.virtual_memory().total == torch.cuda.mem_get_info()[1]
    assert f"sm_{found.major}{found.minor}" in torch.cuda.get_arch_list()
    assert repr(found).startswith(f"_CudaDeviceProperties(name='{found.name}', major=8, minor=0, total_memory=")


@pytest.mark.parametrize("asked", [0, 3, "cuda", "cuda:1", torch.device("cuda", 2), torch.device("cuda")])
def test_indices_that_are_not_there_are_folded(asked: Any) -> None:
    torch.cuda.set_device(asked)
    with torch.cuda.device(asked):
        assert torch.cuda.current_device() == 0
    assert torch.cuda.get_device_name(asked)
    assert torch.cuda.memory_allocated(asked) >= 0


@pytest.mark.parametrize("asked", [8, 9, "cuda:9", torch.device("cuda", 9)])
def test_numbers_that_no_machine_has_are_refused_as_by_cuda(asked: Any) -> None:
    for refused in (torch.cuda.set_device, torch.cuda.memory_allocated, torch.cuda.synchronize):
        with pytest.raises(torch.AcceleratorError, match="CUDA error: invalid device ordinal"):
            refused(asked)
    for refused in (torch.cuda.get_device_properties, torch.cuda.get_device_name, torch.cuda.get_device_capability):
        with pytest.raises(AssertionError, match="Invalid device id"):
            refused(asked)
    assert torch.cuda.current_device() == 0


def test_a_search_for_the_last_device_finds_as_many_as_are_counted() -> None:
    found = 0
    with contextlib.suppress(AssertionError):
        while torch.cuda.get_device_properties(found):
            found += 1
    assert found == torch.cuda.device_count()


def test_as_many_numbers_as_local_processes_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "12")
    torch.cuda.set_device(11)
    assert torch.cuda.current_device() == 0


def test_bad_devices_are_refused_as_by_torch() -> None:
    with pytest.raises(RuntimeError, match="Invalid device string"):
        torch.cuda.set_device("cuda:x")
    with pytest.raises(ValueError, match=re.escape("Expected a torch.device")):
        torch.cuda.set_device(object())
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.get_device_properties(-1)


def test_the_targets_own_module_has_what_torch_cuda_has() -> None:
    module = getattr(torch, torch.zeros(1, device="cuda").device.type)
    assert module.max_memory_allocated() >= 0
    assert module.get_device_name() == torch.cuda.get_device_name()
    module.empty_cache()
    torchdevice.deactivate()
    assert not hasattr(torch.cpu, "max_memory_allocated")


# --- streams and events -----------------------------------------------------------------------------------------


def test_streams_are_classes_with_cudas_semantics() -> None:
    stream = torch.cuda.Stream(priority=-9)
    assert isinstance(stream, torch.cuda.Stream)
    assert isinstance(stream, torch.Stream)
    assert stream.priority == torch.cuda.Stream.priority_range()[1]
    assert stream != torch.cuda.Stream()
    assert stream == stream
    assert len({stream, stream}) == 1
    assert stream.device == torch.zeros(1, device="cuda").device
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == stream
        event = stream.record_event()
    assert torch.cuda.current_stream() == torch.cuda.default_stream() != stream
    with stream:
        assert torch.cuda.current_stream() == stream
    stream.wait_event(event)
    stream.wait_stream(torch.cuda.current_stream())
    stream.synchronize()
    assert stream.query()
    assert event.query()
    assert isinstance(stream.cuda_stream, int)
    assert "torch.cuda.Stream" in repr(stream)
    torch.zeros(1, device="cuda").record_stream(stream)


def test_streams_and_events_can_be_subclassed() -> None:
    class Mine(torch.cuda.Stream):
        def label(self) -> str:
            return "mine"

    class Named(torch.cuda.Event):
        pass

    with torch.cuda.stream(Mine()) as _:
        event = Named(enable_timing=True)
        event.record()
    assert Mine().label() == "mine"
    assert isinstance(event, torch.cuda.Event)
    assert isinstance(event, torch.Event)
    assert torch.cuda.ExternalStream(0x20).cuda_stream == 0x20


@pytest.mark.parametrize("asked", [("cuda",), (torch.device("cuda", 0),), ()], ids=str)
def test_streams_and_events_of_torch_itself(asked: tuple[Any, ...]) -> None:
    stream, start, end = torch.Stream(*asked), *(torch.Event(*asked, enable_timing=True) for _ in range(2))
    assert isinstance(stream, torch.Stream)
    assert isinstance(end, torch.Event)
    with stream:
        start.record()
        end.record(stream)
    end.synchronize()
    stream.wait_event(end)
    stream.synchronize()
    assert start.query()
    assert start.elapsed_time(end) >= 0
    assert stream.device == torch.zeros(1, device="cuda").device


def test_the_current_stream_is_a_threads_own() -> None:
    seen = []
    with torch.cuda.stream(torch.cuda.Stream()):
        worker = threading.Thread(target=lambda: seen.append(torch.cuda.current_stream()))
        worker.start()
        worker.join()
    assert seen == [torch.cuda.default_stream()]


def test_events_tell_honest_milliseconds() -> None:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    began = time.perf_counter()
    time.sleep(0.03)
    end.record()
    torch.cuda.synchronize()
    wall = (time.perf_counter() - began) * 1000
    assert 29 < start.elapsed_time(end) <= wall + 1


@pytest.mark.parametrize("kind", [ValueError, RuntimeError])
def test_events_refuse_what_cuda_refuses(kind: type[Exception]) -> None:
    untimed, timed = torch.cuda.Event(), torch.cuda.Event(enable_timing=True)
    untimed.record()
    with pytest.raises(kind, match="Both events must be created with argument 'enable_timing=True'"):
        untimed.elapsed_time(timed)
    with pytest.raises(kind, match="Both events must be recorded"):
        timed.elapsed_time(timed)
    assert timed.query()
    timed.synchronize()


# --- memory -----------------------------------------------------------------------------------------------------


def test_allocated_memory_is_that_of_tensors() -> None:
    before = torch.cuda.memory_allocated()
    held = torch.ones(1 << 20, device="cuda")
    view = held[10:]
    assert torch.cuda.memory_allocated() - before == 4 << 20
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    del held, view
    assert torch.cuda.memory_allocated() == before


def test_allocated_memory_is_also_that_of_the_graph_and_of_gradients() -> None:
    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x.clone())
            return x.sum()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return gradient * ctx.saved_tensors[0]

    x = torch.ones(1 << 20, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()
    loss = x.exp().sum()  # exp's result is saved, and nobody else holds it
    held = torch.cuda.memory_allocated() - before
    if not SHOWS_SAVED_TENSORS and held == loss.nbytes:
        return  # torch 2.9 without the library of TorchDevice: only what Python or a gradient holds is counted
    assert held == (4 << 20) + loss.nbytes
    other = Squared.apply(x)
    assert torch.cuda.memory_allocated() - before == (8 << 20) + 2 * loss.nbytes
    loss.backward()
    assert torch.cuda.memory_allocated() - before == (8 << 20) + 2 * loss.nbytes, "saved no more, but there is x.grad"
    del other
    assert torch.cuda.memory_allocated() - before == (4 << 20) + loss.nbytes


def test_asking_for_memory_does_not_run_checkpoints() -> None:
    runs = []

    def step(x: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return x.exp().sin()

    x = torch.ones(4, device="cuda", requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(step, x, use_reentrant=False)
    assert torch.cuda.memory_allocated() > 0
    assert len(runs) == 1
    y.sum().backward()
    assert len(runs) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's high-water mark can be reset on Linux only")
def test_the_peak_sees_what_is_gone_and_can_be_reset() -> None:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.max_memory_allocated()
    big = torch.ones(32 << 20, device="cuda")  # 128 MiB, touched
    del big
    peak = torch.cuda.max_memory_allocated()
    assert peak - before > 100 << 20
    assert peak >= torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() < peak - (64 << 20)


def test_memory_statistics_have_torchs_shape() -> None:
    torch.cuda.reset_accumulated_memory_stats()  # tests of failures may have run in this process
    stats = torch.cuda.memory_stats()
    for name in ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes"):
        for pool in ("all", "small_pool", "large_pool"):
            assert {f"{name}.{pool}.{figure}" for figure in ("current", "peak", "allocated", "freed")} <= stats.keys()
    assert stats["num_ooms"] == 0
    summary = torch.cuda.memory_summary()
    assert "PyTorch CUDA memory summary, device ID 0" in summary
    assert len({len(line) for line in summary.strip().splitlines()}) == 1


def test_nobody_watches_tensors_while_nobody_asks(python: Callable[..., Any]) -> None:
    python(
        "import threading, torch, torchdevice\ntorchdevice.activate(target='cpu')\n"
        "torch.ones(3, device='cuda')\nassert threading.active_count() == 1, threading.enumerate()\n"
        "import sys; assert 'psutil' not in sys.modules\n"
        "assert torch._C._len_torch_dispatch_stack() == 0 and torch._C._len_torch_function_stack() == 0\n"
    )


def test_raw_blocks_and_fractions() -> None:
    pointer = torch.cuda.caching_allocator_alloc(1 << 20)
    before = torch.cuda.memory_allocated()
    torch.cuda.caching_allocator_delete(pointer)
    assert before - torch.cuda.memory_allocated() == 1 << 20
    torch.cuda.set_per_process_memory_fraction(0.5)
    assert torch.cuda.get_per_process_memory_fraction() == 0.5
    with pytest.raises(ValueError, match="Invalid fraction value"):
        torch.cuda.set_per_process_memory_fraction(2.0)
    torch.cuda.set_per_process_memory_fraction(1.0)
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total


# --- random numbers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [torch.cuda.manual_seed, torch.cuda.manual_seed_all], ids=["one", "all"])
def test_seeding_makes_numbers_reproducible(seed: Any) -> None:
    seed = getattr(torch.cuda, seed.__name__)
    seed(5)
    first = torch.randn(4, device="cuda")
    seed(5)
    assert torch.equal(first, torch.randn(4, device="cuda"))
    assert torch.cuda.initial_seed() == 5


def test_a_restored_state_restores_the_stream() -> None:
    states = torch.cuda.get_rng_state_all()
    state = torch.cuda.get_rng_state()
    first = torch.randn(4, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(first, torch.randn(4, device="cuda"))
    torch.cuda.set_rng_state_all(states)
    assert torch.equal(first, torch.randn(4, device="cuda"))
    with torch.random.fork_rng(devices=[0], device_type="cuda"):
        torch.randn(4, device="cuda")
    torch.cuda.random.set_rng_state(state, "cuda:0")
    assert torch.equal(first, torch.randn(4, generator=torch.cuda.default_generators[0], device="cuda"))


def test_a_state_saved_on_cuda_gives_its_seed() -> None:
    state = torch.tensor([7, *[0] * 15], dtype=torch.uint8)
    torch.cuda.set_rng_state(state)
    first = torch.randn(2, device="cuda")
    torch.cuda.manual_seed(7)
    assert torch.equal(first, torch.randn(2, device="cuda"))


def test_torch_manual_seed_is_not_disturbed() -> None:
    torch.manual_seed(3)
    first = torch.randn(3)
    torchdevice.deactivate()
    torch.manual_seed(3)
    assert torch.equal(first, torch.randn(3))


# --- what cannot work -------------------------------------------------------------------------------------------


def _arguments(row_name: str) -> tuple[Any, ...]:
    return (None,) * 3 if row_name.endswith("Allocator") else (None,)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, row.name) for kind, rows in SURFACE.items() for row in rows if row.kind is Kind.UNSUPPORTED],
)
def test_unsupported_names_say_what_to_do(kind: str, name: str) -> None:
    value = getattr(torch, kind)
    for part in name.split("."):
        if not hasattr(value, part):
            pytest.skip(f"torch {torch.__version__} has no torch.{kind}.{name}")
        value = getattr(value, part)
    with pytest.raises(torchdevice.CudaOnlyError, match="was called; the device here is cpu") as refusal:
        value(*_arguments(name))
    assert isinstance(refusal.value, NotImplementedError)
    assert "\nHint: " in str(refusal.value)


def test_cuda_errors_keep_their_classes() -> None:
    with pytest.raises(torch.cuda.CudaError, match=r"out of memory \(2\)"):
        torch.cuda.check_error(2)
    assert torch.cuda.check_error(torch.cuda.cudart().cudaError.success) is None
    assert torch.cuda.OutOfMemoryError is torch.OutOfMemoryError
    with pytest.raises(torchdevice.CudaOnlyError, match="graph is a list of operators"):
        torch.cuda.CUDAGraph().raw_cuda_graph()


def test_building_cuda_sources_is_refused_clearly() -> None:
    from torch.utils import cpp_extension

    with pytest.raises(torchdevice.CudaOnlyError, match="was asked to build CUDA sources"):
        cpp_extension.load("name", sources=["kernel.cu"])
    with pytest.raises(torchdevice.CudaOnlyError, match="CppExtension"):
        cpp_extension.CUDAExtension("name", ["kernel.cu"])
    with pytest.raises(OSError, match=r"the extension 'name' \(a/kernel.cu\); the device here is cpu"):
        cpp_extension.load("name", [Path("a/kernel.cu"), "bind.cpp"])
    with pytest.raises(RuntimeError, match="the extension 'name'; the device here is cpu"):
        cpp_extension.load_inline("name", "", "__global__ void f() {}")
    torchdevice.deactivate()
    assert not torchdevice.is_patched("torch.utils.cpp_extension.load")
    assert cpp_extension.load.__module__ == "torch.utils.cpp_extension"
    assert not hasattr(cpp_extension.load, "__wrapped__")


def test_namespaces_share_the_device_and_not_the_streams(active: None) -> None:
    intel, nvidia = torch.xpu.Stream(), torch.cuda.Stream()
    assert intel.stream_id != nvidia.stream_id
    with intel:
        assert torch.cuda.current_stream() != nvidia
