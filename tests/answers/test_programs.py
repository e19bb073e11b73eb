"""What training code does with torch.cuda on a CPU: mixed precision, graphs, compilers, profilers, parallel helpers."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.cuda.comm  # torch does not load it by itself
from torch import nn

from tests.torches import BUILT_FOR_CUDA
from tests.virtual.harness import run_python
from torchdevice.answers.devices import CUDA_VERSION
from torchdevice.translate.points import resolve_path

pytestmark = [
    pytest.mark.usefixtures("active"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


# --- mixed precision ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_tells_the_targets_state(dtype: torch.dtype) -> None:
    assert not torch.is_autocast_enabled("cuda")
    assert not torch.is_autocast_enabled()
    assert torch.get_autocast_gpu_dtype() is torch.float16
    with torch.autocast("cuda", dtype=dtype):
        assert torch.is_autocast_enabled("cuda")
        assert torch.is_autocast_enabled()
        assert torch.get_autocast_dtype("cuda") is torch.get_autocast_gpu_dtype() is dtype
        assert (torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")).dtype is dtype
        with torch.cuda.amp.autocast(enabled=False):
            assert not torch.is_autocast_enabled("cuda")
    assert not torch.is_autocast_enabled("cuda")


def test_a_default_dtype_that_was_set_is_used() -> None:
    before = torch.get_autocast_gpu_dtype(), torch.get_autocast_dtype("cpu")
    torch.set_autocast_gpu_dtype(torch.bfloat16)
    try:
        with torch.autocast("cuda"):
            assert (torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")).dtype is torch.bfloat16
    finally:
        torch.set_autocast_gpu_dtype(before[0])
        torch.set_autocast_dtype("cpu", before[1])


def test_the_scaler_scales_skips_and_updates() -> None:
    parameter = nn.Parameter(torch.ones(2, device="cuda"))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.cuda.amp.GradScaler(init_scale=8.0)
    scaler.scale(parameter.sum()).backward()
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [8.0, 8.0]
    parameter.grad[0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [1.0, 1.0]
    assert scaler.get_scale() == 4.0
    optimizer.zero_grad()
    scaler.scale(parameter.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert parameter.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.LayerNorm(8), (2, 8)),
        (nn.GroupNorm(2, 8), (2, 8)),
        (nn.BatchNorm1d(8), (4, 8)),
        (nn.InstanceNorm1d(8, affine=True), (2, 8, 5)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_half_weights_meet_float_inputs_under_autocast(module: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, device="cuda", requires_grad=True)
    wanted = module(x.detach())
    half = module.half().cuda()
    with torch.autocast("cuda"):
        result = half(x)
    torch.testing.assert_close(result.float(), wanted, rtol=2e-2, atol=2e-2)
    result.float().sum().backward()
    assert x.grad is not None
    assert half.weight.grad is not None
    assert half.weight.grad.dtype is torch.float16
    with pytest.raises(RuntimeError, match=r"mixed dtype|[Ee]xpected"):
        half(x)


def test_batch_statistics_in_half_precision_are_kept() -> None:
    norm = nn.BatchNorm1d(4).half()
    with torch.autocast("cuda"):
        norm(torch.randn(64, 4, device="cuda") + 5)
    assert norm.running_mean is not None
    assert norm.running_mean.dtype is torch.float16
    assert (norm.running_mean > 0.3).all()


# --- graphs -----------------------------------------------------------------------------------------------------


@pytest.fixture
def side_stream(active: None) -> Iterator[None]:
    with torch.cuda.stream(torch.cuda.Stream()):
        yield


def test_a_capture_needs_a_stream_of_its_own() -> None:
    with pytest.raises(RuntimeError, match=r"^CUDA graphs must be captured on a non-default stream\."):
        torch.cuda.CUDAGraph().capture_begin()


@pytest.mark.usefixtures("side_stream")
def test_a_capture_belongs_to_its_thread() -> None:
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(3, device="cuda")
    graph.capture_begin()
    x += 1
    with ThreadPoolExecutor(1) as other:
        assert not other.submit(torch.cuda.is_current_stream_capturing).result()
        with pytest.raises(RuntimeError, match="from another thread"):
            other.submit(graph.capture_end).result()
    assert torch.cuda.is_current_stream_capturing()
    graph.capture_end()
    graph.replay()
    assert x.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.usefixtures("side_stream")
def test_a_capture_that_is_given_up_ends() -> None:
    graph, x = torch.cuda.CUDAGraph(), torch.zeros(3, device="cuda")
    graph.capture_begin()
    x += 1
    graph.reset()
    assert not torch.cuda.is_current_stream_capturing()
    assert x.tolist() == [0.0, 0.0, 0.0]
    dropped = torch.cuda.CUDAGraph()
    dropped.capture_begin()
    del dropped
    assert not torch.cuda.is_current_stream_capturing()


@pytest.mark.usefixtures("side_stream")
def test_a_capture_that_newer_versions_of_torch_end_in_two_calls() -> None:
    class Newer(torch.cuda.CUDAGraph):
        def capture_end(self) -> None:
            self.capture_end_pre()
            self.capture_end_post()

    graph, x = Newer(), torch.zeros(3, device="cuda")
    graph.capture_begin()
    x += 1
    graph.capture_end()
    assert graph._has_graph_exec
    graph.replay()
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_a_capture_imports_nothing_of_the_compiler() -> None:
    done = run_python(
        "-c",
        """
import sys, torch, torchdevice
torchdevice.activate(target="cpu")
graph, x = torch.cuda.CUDAGraph(), torch.zeros(3)
before = set(sys.modules)
with torch.cuda.graph(graph):
    y = x + 1
x.fill_(4)
graph.replay()
new = {name for name in set(sys.modules) - before if name.startswith("torch")}
print(y.tolist(), sorted(new - {"torch.cuda._graph_node_callbacks"}))  # that one: by a capture itself, since 2.15
""",
    )
    assert done.stdout == "[5.0, 5.0, 5.0] []\n", done.stdout + done.stderr


def _model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()


def test_a_captured_training_step_trains_as_an_eager_one() -> None:
    data = [torch.randn(16, 4, device="cuda") for _ in range(5)]
    losses: dict[str, list[float]] = {"eager": [], "graph": []}

    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x in data:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses["eager"].append(loss.item())

    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    static = torch.zeros(16, 4, device="cuda")
    before = [parameter.clone() for parameter in model.parameters()]
    for parameter in model.parameters():  # gradients and momentum exist before the capture, as on CUDA after a warm-up
        parameter.grad = torch.zeros_like(parameter)
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.zero_grad(set_to_none=False)
        static_loss = model(static).pow(2).mean()
        static_loss.backward()
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)), "capture left a trace"
    for x in data:
        static.copy_(x)
        graph.replay()
        losses["graph"].append(static_loss.item())
    torch.testing.assert_close(losses["graph"], losses["eager"])


def test_replays_draw_new_random_numbers() -> None:
    graph, dropout = torch.cuda.CUDAGraph(), nn.Dropout(0.5)
    x = torch.ones(1000, device="cuda")
    with torch.cuda.graph(graph):
        y = dropout(x)
    graph.replay()
    first = y.clone()
    graph.replay()
    assert not torch.equal(first, y)


def test_capture_knows_its_state() -> None:
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="replay without a preceding successful capture"):
        graph.replay()
    assert not torch.cuda.is_current_stream_capturing()
    with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
        assert torch.cuda.is_current_stream_capturing()
        with pytest.raises(RuntimeError, match="captures cannot be nested"):
            torch.cuda.CUDAGraph().capture_begin()
    assert not torch.cuda.is_current_stream_capturing()
    with pytest.raises(ZeroDivisionError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        raise ZeroDivisionError
    assert not torch.cuda.is_current_stream_capturing()
    graph.reset()


def test_graphed_callables_have_gradients() -> None:
    model = _model()
    graphed = torch.cuda.make_graphed_callables(_model(), (torch.randn(3, 4, device="cuda"),))
    for _ in range(2):
        x = torch.randn(3, 4, device="cuda")
        model.zero_grad()
        graphed.zero_grad()
        model(x).sum().backward()
        graphed(x).sum().backward()
        for mine, theirs in zip(graphed.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)


# --- compilation and profiling ----------------------------------------------------------------------------------


def test_questions_are_constants_of_a_compiled_graph() -> None:
    @torch.compile(fullgraph=True, backend="eager")
    def compiled(x: torch.Tensor) -> torch.Tensor:
        if torch.cuda.is_available() and torch.cuda.device_count() > 0 and torch.cuda.is_bf16_supported():
            x = x * torch.cuda.get_device_capability()[0]
        return x + torch.cuda.current_device() + torch.cuda.get_device_properties(0).warp_size

    assert compiled(torch.ones(2, device="cuda")).tolist() == [40.0, 40.0]


def test_reduce_overhead_looks_for_no_cuda_graphs() -> None:
    done = run_python(
        "-W",
        "ignore",
        "-c",
        "import torch, torchdevice; torchdevice.activate(target='cpu')\n"
        "f = torch.compile(lambda x: (x.cuda() * 2).sin() + torch.ones(2, device='cuda'), mode='reduce-overhead')\n"
        "x = torch.rand(2)\n"
        "for _ in range(3): torch.testing.assert_close(f(x), (x * 2).sin() + 1)\n",
    )
    assert done.returncode == 0, done.stderr


def test_profilers_that_are_told_of_cuda() -> None:
    activities = torch.profiler.ProfilerActivity
    for chosen in ([activities.CPU, activities.CUDA], [activities.CUDA]):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "CUDA is not available")
            profile = torch.profiler.profile(activities=chosen)
            profile.start()
        torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
        profile.stop()
        assert "aten::" in profile.key_averages().table(sort_by="cuda_time_total", row_limit=5)
    old = inspect.signature(torch.autograd.profiler.profile).parameters
    for given in ({"use_device": "cuda"}, *([{"use_cuda": True}] if "use_cuda" in old else [])):  # up to 2.14
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "CUDA is not available")
            profile = torch.autograd.profiler.profile(**given)
        with profile:
            torch.ones(2, device="cuda") + 1
        assert "aten::add" in profile.key_averages().table(sort_by="cuda_time_total")
    with torch.autograd.profiler.emit_nvtx(record_shapes=True), torch.cuda.profiler.profile():
        assert torch.cuda.nvtx.range_push("outer") == 0
        with torch.cuda.nvtx.range("inner {}", 1):
            torch.ones(2, device="cuda") + 1
        assert torch.cuda.nvtx.range_pop() == 0


# --- flags ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        ("cudnn", "benchmark", True),
        ("cudnn", "deterministic", True),
        ("cudnn", "enabled", False),
        ("cudnn", "allow_tf32", False),
        ("cuda.matmul", "allow_tf32", True),
        ("cuda.matmul", "allow_fp16_reduced_precision_reduction", False),
        ("cuda.cufft_plan_cache", "max_size", 10),
    ],
)
def test_flags_can_be_set_and_read(path: str, name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch's own test helpers, which other tests of this process may have imported, forbid it.
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)
    owner = resolve_path(f"torch.backends.{path}")
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        assert getattr(owner, name) == value
    finally:
        setattr(owner, name, before)


@pytest.mark.parametrize(
    ("name", "choice"), [("linalg", "cusolver"), ("linalg", "magma"), ("blas", "cublaslt"), ("blas", "cublas")]
)
def test_libraries_of_cuda_can_be_preferred(name: str, choice: str) -> None:
    prefer = getattr(torch.backends.cuda, f"preferred_{name}_library")
    before = prefer()
    assert prefer(choice).name.lower() == choice
    assert prefer().name.lower() == choice
    with pytest.raises(RuntimeError, match="Unknown input value"):
        prefer("nonsense")
    assert prefer(before) == prefer() == before


def test_versions_and_builds() -> None:
    assert torch.version.cuda == (BUILT_FOR_CUDA or CUDA_VERSION)
    assert torch.backends.cuda.is_built()
    assert torch.backends.cudnn.is_available()
    assert torch.backends.cudnn.version() > 90000
    assert torch.cuda.get_gencode_flags() == "-gencode compute=compute_80,code=sm_80"
    with torch.backends.cuda.sdp_kernel(enable_flash=False):
        assert not torch.backends.cuda.flash_sdp_enabled()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        q = torch.ones(1, 1, 2, 4, device="cuda")
        assert torch.nn.functional.scaled_dot_product_attention(q, q, q).shape == q.shape


# --- several devices that are one -------------------------------------------------------------------------------


def test_data_parallel_runs_its_module() -> None:
    model = nn.DataParallel(_model(), device_ids=[0, 1])
    x = torch.ones(4, 4, device="cuda")
    assert isinstance(model, nn.DataParallel)
    torch.testing.assert_close(model(x), model.module(x))
    torch.testing.assert_close(nn.parallel.data_parallel(model.module, x, [0, 1]), model.module(x))


def test_parallel_helpers_on_one_device() -> None:
    batch = {"x": torch.arange(6.0, device="cuda"), "n": 3}
    parts = nn.parallel.scatter(batch, [0, 1])
    assert [part["x"].tolist() for part in parts] == [[0, 1, 2], [3, 4, 5]]
    assert parts[1]["n"] == 3
    assert nn.parallel.gather([part["x"] for part in parts], 0).tolist() == batch["x"].tolist()
    replicas = nn.parallel.replicate(_model(), [0, 1])
    inputs = [(torch.ones(2, 4, device="cuda"),)] * 2
    outputs = [replica(*given) for replica, given in zip(replicas, inputs, strict=True)]
    assert nn.parallel.gather(outputs, 0).shape == (4, 1)


def test_collectives_over_a_list_of_tensors() -> None:
    tensors = [torch.full((2,), float(number), device="cuda") for number in (1, 2)]
    torch.cuda.nccl.all_reduce(tensors)
    assert [each.tolist() for each in tensors] == [[3, 3], [3, 3]]
    assert torch.cuda.comm.reduce_add(tensors).tolist() == [6, 6]
    assert [each.tolist() for each in torch.cuda.comm.scatter(torch.arange(4.0), [0, 1])] == [[0, 1], [2, 3]]
    assert torch.cuda.comm.gather(tensors).tolist() == [3, 3, 3, 3]
    assert torch.cuda.comm.broadcast_coalesced(tensors, [0, 1])[1][0].tolist() == [3, 3]


# --- the example ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["", "mps"])
def test_the_example_trains(device: str) -> None:
    env = {"TORCHDEVICE_VIRTUAL": device} if device else {}
    done = run_python("-W", "ignore", "-m", "torchdevice", "examples/train_cuda.py", env=env)
    assert done.returncode == 0, done.stderr
    assert "accuracy 0." in done.stdout
    assert "1 device: " in done.stdout


def test_the_example_fails_without_us() -> None:
    done = run_python("examples/train_cuda.py")
    assert done.returncode != 0
    assert "this script needs CUDA" in done.stderr
