"""On a host with an accelerator: code that was written for another one (`mps` where there is CUDA, else `cuda`)."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.distributed as dist
from torch import nn

import torchdevice
import torchdevice.virtual

pytestmark = [pytest.mark.accelerated, pytest.mark.filterwarnings("ignore")]
TARGET = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "none"
FOREIGN = "cuda" if TARGET != "cuda" else "mps"


@pytest.fixture(autouse=True)
def _accelerate() -> Iterator[None]:
    with torchdevice.redirect(policy="accelerate"):
        yield


@pytest.mark.parametrize("request_", [None, "cpu", "cpu:0", FOREIGN, f"{FOREIGN}:0", TARGET])
def test_every_request_is_the_accelerator(request_: str | None) -> None:
    assert torch.ones(2, device=request_).device.type == TARGET
    assert nn.Linear(2, 2, device=request_).weight.device.type == TARGET
    if request_ is not None:
        with torchdevice.suspended():
            here = torch.ones(2)
        assert here.to(request_).device.type == TARGET


def test_the_override_is_the_cpu() -> None:
    with torchdevice.cpu_override():
        assert torch.ones(2, device="cpu").device.type == "cpu"


def test_streams_and_events_of_the_other_namespace() -> None:
    module = getattr(torch, FOREIGN)
    start, end = (module.Event(enable_timing=True) for _ in range(2))
    start.record()
    x = torch.randn(256, 256, device=FOREIGN)
    (x @ x).sum()
    end.record()
    end.synchronize()
    module.synchronize()
    assert start.elapsed_time(end) >= 0
    assert end.query()


def test_memory_of_the_other_namespace_is_the_accelerator_s() -> None:
    held = torch.empty(1 << 20, device=FOREIGN)
    if FOREIGN == "mps":
        assert torch.mps.current_allocated_memory() >= held.numel() * 4
        torch.mps.empty_cache()
        assert torch.mps.driver_allocated_memory() >= torch.mps.current_allocated_memory()
    else:
        assert torch.cuda.memory_allocated() >= held.numel() * 4
        assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
        free, total = torch.cuda.mem_get_info()
        assert 0 < free <= total


def test_seeds_of_the_other_namespace_repeat() -> None:
    module = getattr(torch, FOREIGN)
    module.manual_seed(7)
    first = torch.randn(4, device=FOREIGN)
    state = module.get_rng_state()
    second = torch.randn(4, device=FOREIGN)
    module.set_rng_state(state)
    assert torch.equal(torch.randn(4, device=FOREIGN), second)
    module.manual_seed(7)
    assert torch.equal(torch.randn(4, device=FOREIGN), first)


def test_autocast_and_scaler_of_the_other_device() -> None:
    model = nn.Linear(8, 8).to(FOREIGN)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler(FOREIGN)
    with torch.autocast(FOREIGN, dtype=torch.bfloat16):
        out = model(torch.randn(4, 8, device=FOREIGN))
    assert out.dtype == torch.bfloat16
    before = model.weight.detach().clone()
    scaler.scale(out.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before, model.weight)


def test_compiled_attention_under_autocast() -> None:
    """Attention is traced below autocast, in float32: the compiled code must not be cast a second time."""
    allowed = torch.ones(8, 8, dtype=torch.bool, device=FOREIGN).tril()

    def attend(x: torch.Tensor) -> torch.Tensor:
        query = x @ x.mT
        return nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=allowed).float().sum()

    torch._dynamo.reset()
    gradients = []
    for function in (attend, torch.compile(attend, backend="aot_eager", fullgraph=True)):
        x = torch.linspace(-1, 1, 64, device=FOREIGN).view(1, 1, 8, 8).requires_grad_()
        with torch.autocast(FOREIGN, dtype=torch.bfloat16):
            function(x).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients, rtol=0.05, atol=0.05)


def test_compiled_code() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (x.to(FOREIGN) @ torch.ones(4, 4, device=FOREIGN)).relu() + 1

    x = torch.randn(4, 4)
    torch._dynamo.reset()
    with torch.no_grad():
        got = torch.compile(program, fullgraph=True)(x)
    assert got.device.type == TARGET
    torch.testing.assert_close(got, program(x))


def test_what_a_program_keeps_does_not_follow_the_weights() -> None:
    model = nn.Linear(2, 2).to(FOREIGN)
    nn.init.ones_(model.weight)
    best = {name: value.cpu() for name, value in model.state_dict().items()}
    kept = {name: value.detach().to("cpu") for name, value in model.named_parameters()}
    named = model.weight.detach().to(device="cpu", dtype=torch.float32)
    array = model.weight.detach().cpu().numpy()
    with torch.no_grad():
        same = model.weight.cpu()
        model.weight.add_(41)
    for copy in (best["weight"], kept["weight"], named, same, array):
        assert copy.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert best["weight"].device.type == TARGET
    leaf = torch.ones(2, requires_grad=True).cpu()
    leaf.sum().backward()
    assert leaf.grad is not None


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RMSprop])
def test_capturable_optimizers(kind: type[torch.optim.Optimizer]) -> None:
    weight = nn.Parameter(torch.ones(2, device=FOREIGN))
    other = nn.Parameter(torch.ones(2, device=FOREIGN))
    steps = [kind([weight], lr=0.1, capturable=True), kind([other], lr=0.1)]  # type: ignore[call-arg]
    for _ in range(3):
        for each, optimizer in zip((weight, other), steps, strict=True):
            each.grad = each.detach() * 2
            optimizer.step()
    torch.testing.assert_close(weight, other)


@pytest.mark.parametrize("name", ["EFFICIENT_ATTENTION", "CUDNN_ATTENTION", "FLASH_ATTENTION"])
def test_a_kernel_of_cudas_may_be_chosen_for_attention(name: str) -> None:
    if TARGET == "cuda" and torch.version.cuda and not torchdevice.virtual.installed():
        pytest.skip("it has them, with conditions of its own")
    x = torch.randn(1, 2, 4, 8, device=FOREIGN)
    attend = nn.functional.scaled_dot_product_attention
    with nn.attention.sdpa_kernel(getattr(nn.attention.SDPBackend, name)):
        torch.testing.assert_close(attend(x, x, x), attend(x, x, x))
        assert attend(x, x, x, dropout_p=0.5).shape == x.shape
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        torch.testing.assert_close(attend(x, x, x), attend(x, x, x))


def test_numpys_integers_are_ordinals() -> None:
    zero = np.int64(0)
    assert torch.zeros(1, device=zero).device.type == TARGET
    assert torch.zeros(1).to(zero).device.type == TARGET
    assert nn.Linear(1, 1).cuda(zero).weight.device.type == TARGET
    assert torch.device(zero).type == TARGET


def test_distributed_data_parallel_with_one_device() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1).to(FOREIGN))
        model(torch.ones(2, 4, device=FOREIGN)).sum().backward()
        assert model.module.weight.grad.device.type == TARGET
        assert model.module.weight.grad.tolist() == [[2.0] * 4]
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps", 0])
def test_safetensors_reads_and_writes_the_memory_that_it_asked_for(device: str | int, tmp_path: Path) -> None:
    """On a real GPU a redirected staging buffer ends the process; on a virtual one it is only counted."""
    path = str(tmp_path / "weights.safetensors")
    weights = {"a": torch.randn(4, 5), "half": torch.randn(3).half(), "none": torch.empty(0)}
    safetensors.torch.save_file(weights, path)
    loaded = safetensors.torch.load_file(path, device=device)
    with safetensors.safe_open(path, "pt", device=device) as file:
        part = file.get_slice("a")[1:3, ::2]
    assert {tensor.device.type for tensor in (*loaded.values(), part)} == {TARGET}
    assert all(torch.equal(loaded[name], tensor) for name, tensor in weights.items())
    assert torch.equal(part, weights["a"][1:3, ::2])
    inside = {place.api for place in torchdevice.report().by_place if "safetensors" in place.site.file}
    assert inside <= {"safetensors.safe_open"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float8_e4m3fn])
def test_safetensors_with_a_dtype_that_a_mac_lacks(dtype: torch.dtype, tmp_path: Path) -> None:
    path = str(tmp_path / "weights.safetensors")
    with torchdevice.suspended():
        expected = torch.arange(6.0).view(2, 3)
        safetensors.torch.save_file({"wide": expected.to(dtype), "own": expected}, path)
    loaded = safetensors.torch.load_file(path, device="cuda")
    with safetensors.safe_open(path, "pt", device="cuda") as file:
        os.remove(path)  # it is mapped
        row = file.get_slice("wide")[1]
    assert loaded["wide"].device.type == row.device.type == TARGET
    assert torch.equal(loaded["wide"].float(), loaded["own"])
    assert torch.equal(row.float(), loaded["own"][1])


UNTOUCHED = """
import torch
kind = torch.accelerator.current_accelerator().type
module = getattr(torch, kind)
before = module.is_initialized() if hasattr(module, "is_initialized") else True
def touched(*_):
    raise AssertionError("activation initialised the device")
kept = {name: vars(module)[name] for name in ("init", "_lazy_init") if name in vars(module)}
vars(module).update(dict.fromkeys(kept, touched))
import torchdevice
torchdevice.activate()
if hasattr(module, "is_initialized"):
    assert module.is_initialized() == before
vars(module).update(kept)
for each in (torch.mps, torch.xpu, torch.cuda):
    each.manual_seed(3)
assert torch.xpu.default_generators[0].initial_seed() == 3 and len(torch.xpu.default_generators) >= 1
"""


def test_activation_leaves_the_device_alone(python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    """Else a script could not choose its GPUs after `import torch`, and its forked children would have none."""
    python(UNTOUCHED, TORCHDEVICE_VIRTUAL=os.environ.get("TORCHDEVICE_VIRTUAL", ""))
