"""What user code sees, on a host that has nothing but the CPU: every way to ask for a device ends there."""

from __future__ import annotations

import copy
import functools
import io
import pickle
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import rnn
from torch.utils import data

import torchdevice

pytestmark = pytest.mark.usefixtures("active")
CPU = torch.device("cpu")


def packed() -> rnn.PackedSequence:
    return rnn.pack_padded_sequence(torch.randn(3, 2, 4), torch.tensor([3, 2]))


def default_type(name: str) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_default_tensor_type(name)
        try:
            return torch.zeros(1)
        finally:
            torch.set_default_tensor_type("torch.FloatTensor")


def default_device() -> torch.Tensor:
    torch.set_default_device("cuda:2")
    try:
        return torch.zeros(1)
    finally:
        torch.set_default_device(None)


def in_context() -> torch.Tensor:
    with torch.device("cuda"):
        return torch.zeros(1)


REQUESTS: dict[str, Callable[[], Any]] = {
    "factory str": lambda: torch.zeros(2, device="cuda"),
    "factory index": lambda: torch.zeros(2, device="cuda:7"),
    "factory int": lambda: torch.zeros(2, device=0),
    "factory device": lambda: torch.zeros(2, device=torch.device("cuda", 1)),
    "factory bytes": lambda: torch.zeros(2, device=b"cuda"),
    "other types": lambda: torch.zeros(2, device="xpu"),
    "tensor": lambda: torch.tensor([1, 2], device="cuda"),
    "as_tensor": lambda: torch.as_tensor([1, 2], device="cuda"),
    "asarray": lambda: torch.asarray([1, 2], device="cuda"),
    "like": lambda: torch.ones_like(torch.zeros(2), device="cuda"),
    "new": lambda: torch.zeros(2).new_full((3,), 1.0, device="cuda"),
    "new_tensor": lambda: torch.zeros(2).new_tensor([1.0], device="cuda"),
    "randperm": lambda: torch.randperm(4, device="cuda"),
    "normal": lambda: torch.normal(0.0, 1.0, (2,), device="cuda"),
    "fftfreq": lambda: torch.fft.fftfreq(4, device="cuda"),
    "window": lambda: torch.hann_window(4, device="cuda"),
    "signal window": lambda: torch.signal.windows.hann(4, device="cuda"),
    "tril_indices": lambda: torch.tril_indices(2, 2, device="cuda"),
    "sparse": lambda: torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (2,), device="cuda"),
    "csr": lambda: torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1), device="cuda"),
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(2)], device="cuda"),
    "pinned": lambda: torch.zeros(2, pin_memory=True),
    "to": lambda: torch.zeros(2).to("cuda"),
    "to device": lambda: torch.zeros(2).to(torch.device("cuda:1")),
    "to keyword": lambda: torch.zeros(2).to(device="cuda", dtype=torch.float16),
    "to positional": lambda: torch.zeros(2).to("cuda", torch.float16, True, copy=True),
    "to int": lambda: torch.zeros(2).to(0),
    "cuda": lambda: torch.zeros(2).cuda(),
    "cuda int": lambda: torch.zeros(2).cuda(3),
    "cuda device": lambda: torch.zeros(2).cuda(torch.device("cuda")),
    "cuda async": lambda: torch.zeros(2).cuda(0, True),
    "cuda keyword": lambda: torch.zeros(2).cuda(device="cuda:1", non_blocking=True),
    "xpu": lambda: torch.zeros(2).xpu(),
    "module to": lambda: nn.Linear(2, 2).to("cuda").weight,
    "module to dtype": lambda: nn.Linear(2, 2).to("cuda", torch.float16).weight,
    "module cuda": lambda: nn.Linear(2, 2).cuda().weight,
    "module cuda int": lambda: nn.Linear(2, 2).cuda(1).weight,
    "module argument": lambda: nn.Linear(2, 2, device="cuda").weight,
    "module to_empty": lambda: nn.Linear(2, 2, device="meta").to_empty(device="cuda").weight,
    "module type": lambda: nn.Linear(2, 2).type("torch.cuda.HalfTensor").weight,
    "packed to": lambda: packed().to("cuda").data,
    "packed cuda": lambda: packed().cuda().data,
    "storage": lambda: torch.UntypedStorage(4, device="cuda"),
    "storage cuda": lambda: torch.zeros(2).untyped_storage().cuda(),
    "storage to": lambda: torch.zeros(2).untyped_storage().to(device="cuda"),
    "generator": lambda: torch.Generator("cuda"),
    "generator keyword": lambda: torch.Generator(device="cuda:1"),
    "stream": lambda: torch.Stream(device="cuda"),
    "event": lambda: torch.Event("cuda"),
    "legacy": lambda: torch.cuda.FloatTensor([1.0]),
    "legacy size": lambda: torch.cuda.LongTensor(2, 3),
    "type str": lambda: torch.zeros(2).type("torch.cuda.FloatTensor"),
    "type class": lambda: torch.zeros(2).type(torch.cuda.HalfTensor),
    "default tensor type": lambda: default_type("torch.cuda.FloatTensor"),
    "default device": default_device,
    "context": in_context,
    "device": lambda: torch.zeros(1, device=torch.device(type="cuda", index=2)),
    "device int": lambda: torch.zeros(1, device=torch.device(3)),
    "override": lambda: torch.zeros(1, device="cpu:-1"),
    "override pair": lambda: torch.zeros(1, device=torch.device("cpu", -1)),
}


@pytest.mark.parametrize("ask", REQUESTS.values(), ids=REQUESTS.keys())
def test_every_request_ends_on_the_cpu(ask: Callable[[], Any]) -> None:
    made = ask()
    assert made.device == CPU or made.device.index == -1


def test_values_dtypes_and_shapes_are_those_of_plain_torch() -> None:
    torch.manual_seed(3)
    ours = [torch.randn(2, 3, device="cuda"), torch.zeros(2).to("cuda", torch.float16), torch.cuda.LongTensor([1, 2])]
    with torchdevice.suspended():
        torch.manual_seed(3)
        plain = [torch.randn(2, 3), torch.zeros(2, dtype=torch.float16), torch.LongTensor([1, 2])]
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(ours, plain, strict=True))


def test_meta_and_contexts_are_left_alone() -> None:
    with torch.device("meta"):
        assert nn.Linear(2, 2).weight.is_meta
    assert torch.zeros(2, device="meta").is_meta


def test_only_devices_are_touched_never_strings_that_look_like_them(tmp_path: Path) -> None:
    path = tmp_path / "cuda_model" / "cuda.pt"
    path.parent.mkdir()
    torch.save({"cuda": torch.ones(2)}, path)
    assert torch.load(str(path))["cuda"].sum() == 2


# --- checkpoints ---------------------------------------------------------------------------------------------


@pytest.fixture
def cuda_checkpoint() -> bytes:
    """A file as CUDA machines write them: the same bytes with the location tag of a GPU."""
    buffer = io.BytesIO()
    with torchdevice.suspended():
        torch.save({"w": torch.arange(3.0), "d": torch.device("cuda", 0)}, buffer, _use_new_zipfile_serialization=False)
    return buffer.getvalue().replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")


MAPS: dict[str, Any] = {
    "none": None,
    "cpu": "cpu",
    "cuda": "cuda:5",
    "override": "cpu:-1",
    "device": CPU,
    "dict": {"cuda:0": "cuda:1"},
    "empty dict": {},
    "keep": lambda storage, _: storage,
    "cuda()": lambda storage, _: storage.cuda(0),
    "decline": lambda storage, location: None,
}


@pytest.mark.parametrize("where", MAPS.values(), ids=MAPS.keys())
@pytest.mark.parametrize("positional", [True, False])
def test_a_checkpoint_saved_on_cuda_loads(cuda_checkpoint: bytes, where: Any, positional: bool) -> None:
    file = io.BytesIO(cuda_checkpoint)
    with torchdevice.suspended(), pytest.raises(RuntimeError, match="deserialize object on a CUDA device"):
        torch.load(io.BytesIO(cuda_checkpoint))
    loaded = torch.load(file, where) if positional else torch.load(file, map_location=where)
    assert loaded["w"].tolist() == [0, 1, 2]
    assert (loaded["w"].device, loaded["d"]) == (CPU, CPU)


def test_sharing_survives_loading() -> None:
    base = torch.zeros(4)
    buffer = io.BytesIO()
    torch.save([base, base[:2]], buffer)
    buffer.seek(0)
    whole, part = torch.load(buffer, map_location="cuda")
    part.fill_(1)
    assert whole.tolist() == [1, 1, 0, 0]


def test_weights_only_still_protects(tmp_path: Path) -> None:
    torch.save(Path("x"), tmp_path / "unsafe.pt")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(tmp_path / "unsafe.pt", map_location="cuda", weights_only=True)


def test_scripted_modules_load(tmp_path: Path) -> None:
    torch.jit.script(nn.Linear(2, 2)).save(str(tmp_path / "m.pt"))
    assert torch.jit.load(str(tmp_path / "m.pt"), "cuda").weight.device == CPU


# --- torch.device as a class ------------------------------------------------------------------------------------


def test_device_is_still_a_class() -> None:
    device = torch.device("cuda")
    assert isinstance(device, torch.device)
    assert type(device) is torchdevice.original("torch.device")
    assert isinstance(device, torch.device | None)
    assert isinstance("cpu", torch.device | str)
    assert issubclass(type(device), torch.device)
    assert torch.device in {type(device)}
    assert hash(torch.device) == hash(type(device))
    assert repr(torch.device) == "<class 'torch.device'>"
    assert torch.device.type.__name__ == "type"
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (torch.device,), {})
    match device:
        case torch.device(type="cpu"):
            pass
        case _:
            pytest.fail("no match")


def test_singledispatch_in_both_orders() -> None:
    @functools.singledispatch
    def name(value: object) -> str:
        return "other"

    name.register(torch.device, lambda value: "device")
    assert name(torch.zeros(1).device) == "device"
    with torchdevice.suspended():
        assert name(torch.device("cuda")) == "device"


def test_devices_pickle_copy_and_save(python: Callable[..., Any]) -> None:
    device = torch.device("cuda", 1)
    assert pickle.loads(pickle.dumps(device)) == copy.copy(device) == copy.deepcopy(device) == CPU
    buffer = io.BytesIO()
    torch.save({"d": device}, buffer)
    plain = python(
        f"import io, sys, torch; print(torch.load(io.BytesIO({buffer.getvalue()!r})))\n"
        "assert 'torchdevice.session' not in sys.modules"
    )
    assert "device(type='cpu')" in plain.stdout


def test_classes_can_be_subclassed_and_annotated() -> None:
    class Event(torch.Event):
        pass

    class Generator(torch.Generator):
        pass

    assert isinstance(Event("cpu"), torch.Event)
    assert isinstance(Generator(), torch.Generator)
    assert isinstance(torch.Generator(), torch.Generator)


# --- bad input: torch's own words ----------------------------------------------------------------------------------

BAD = ["banana", "cuda:x", "cuda:-2", "cuda:1:2", "", "cpu:-2", object(), [], {}, True, 1.5, -1, (1, 2)]
CALLS: dict[str, Callable[[Any], Any]] = {
    "device": lambda bad: torch.device(bad),
    "zeros": lambda bad: torch.zeros(2, device=bad),
    "ones_like": lambda bad: torch.ones_like(torch.zeros(2), device=bad),
    "tensor": lambda bad: torch.tensor([1], device=bad),
    "to": lambda bad: torch.zeros(2).to(bad),
    "to keyword": lambda bad: torch.zeros(2).to(device=bad),
    "cuda": lambda bad: torch.zeros(2).cuda(bad),
    "Generator": lambda bad: torch.Generator(device=bad),
    "Module.to": lambda bad: nn.Linear(1, 1).to(bad),
}


def outcome(call: Callable[[Any], Any], bad: Any) -> Any:
    try:
        return type(call(bad))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: "object" if type(bad) is object else repr(bad))
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_bad_input_raises_what_plain_torch_raises(call: Callable[[Any], Any], bad: Any) -> None:
    ours = outcome(call, bad)
    torchdevice.deactivate()
    assert ours == outcome(call, bad)


@pytest.mark.parametrize("arguments", [(), ("cuda", "1"), ("cuda:1", 2), (None,), ("cuda", -2)])
def test_bad_device_arguments(arguments: tuple[Any, ...]) -> None:
    ours = outcome(lambda given: torch.device(*given), arguments)
    torchdevice.deactivate()
    assert ours == outcome(lambda given: torch.device(*given), arguments)


# --- amp, randomness, small things --------------------------------------------------------------------------------


def test_autocast_keeps_the_dtype_that_cuda_would_use() -> None:
    x = torch.ones(4, 4, device="cuda")
    with torch.autocast("cuda"):
        assert (x @ x).dtype == torch.float16
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with torch.cuda.amp.autocast():
            assert (x @ x).dtype == torch.float16
    with torch.autocast("cuda", enabled=False):
        assert (x @ x).dtype == torch.float32


def test_the_gradient_scaler_scales_and_skips() -> None:
    parameter = nn.Parameter(torch.ones(1, device="cuda"))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = torch.amp.GradScaler(init_scale=4.0)
    assert scaler.is_enabled()
    scaler.scale(parameter * 2).sum().backward()
    assert parameter.grad.item() == 8
    scaler.step(optimizer)
    scaler.update()
    assert parameter.item() == -1
    parameter.grad.fill_(float("inf"))
    scaler.step(optimizer)
    scaler.update()
    assert parameter.item() == -1
    assert scaler.get_scale() == 2.0


def test_custom_functions_see_autocast() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            assert not torch.is_autocast_enabled("cpu")
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad * 2

    x = torch.ones(2, dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        assert Double.apply(x).dtype == torch.float32


def test_generators_are_reproducible() -> None:
    draws = [torch.randn(3, generator=torch.Generator("cuda").manual_seed(5), device="cuda") for _ in range(2)]
    assert torch.equal(*draws)
    with torch.random.fork_rng(devices=[0, 1]):
        inside = torch.rand(1)
    assert torch.equal(inside, torch.rand(1))


PAGEABLE = {
    "tensor": lambda: torch.arange(12.0).view(3, 4),
    "transposed": lambda: torch.arange(12.0).view(3, 4).t(),
    "slice": lambda: torch.arange(12.0)[3:],
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "storage": lambda: torch.ones(3).untyped_storage(),
}

# Factories that are asked for pinned memory, with a tensor that gives them its device.
PINNED_FACTORIES = {
    "zeros": lambda x: torch.zeros(2, pin_memory=True),
    "empty_like": lambda x: torch.empty_like(x, pin_memory=True),
    "new_empty": lambda x: x.new_empty(2, pin_memory=True),
    "new_zeros": lambda x: x.new_zeros(2, pin_memory=True),
    "new_full": lambda x: x.new_full((2,), 1.0, pin_memory=True),
}


@pytest.mark.parametrize("name", PINNED_FACTORIES)
def test_factories_make_pinned_tensors(name: str, active: None) -> None:
    x = torch.ones(2)
    assert PINNED_FACTORIES[name](x).is_pinned()
    assert not x.is_pinned()
    assert not torch.empty_like(x).is_pinned()


WHOLE_SAMPLES = {
    "dataset": lambda x: data.DataLoader(data.TensorDataset(x), batch_size=None, pin_memory=True),
    "list": lambda x: data.DataLoader([(x,)], batch_size=None, pin_memory=True),
    "collated": lambda x: data.DataLoader([(x,)], collate_fn=lambda samples: samples[0], pin_memory=True),
}


@pytest.mark.parametrize("name", WHOLE_SAMPLES)
def test_pinned_batches_are_not_the_data(name: str, active: None) -> None:
    """Without workers, a batch may be a sample of the dataset itself."""
    x = torch.arange(4.0)
    for (batch,) in WHOLE_SAMPLES[name](x):
        assert batch.is_pinned()
        batch.mul_(10)
    assert x.tolist() == [0, 1, 2, 3]
    assert not x.is_pinned()


@pytest.mark.parametrize("name", PAGEABLE)
def test_pinned_memory_is_a_copy(name: str) -> None:
    """As on CUDA: a program that reuses a pinned buffer does not change the tensor that it was made from."""
    source = PAGEABLE[name]()
    pinned = source.pin_memory()
    if isinstance(source, torch.UntypedStorage):
        pinned[0] = 7
        assert source[0] == 0
        assert pinned.is_pinned()
        assert not source.is_pinned()
        return
    assert (pinned.shape, pinned.stride() if name != "sparse" else None) == (
        source.shape,
        source.stride() if name != "sparse" else None,
    )
    assert type(pinned) is torch.Tensor
    before = source.detach().clone()
    with torch.no_grad():
        pinned.mul_(3)
    assert torch.equal(source.detach().to_dense(), before.to_dense())
    if source.requires_grad:
        source.pin_memory().sum().backward()
        assert torch.equal(source.grad, torch.ones(3))


def test_small_methods() -> None:
    x = torch.zeros(2, device="cuda")
    pinned = x.pin_memory()
    assert pinned.is_pinned()
    assert pinned[1:].is_pinned()
    assert pinned.pin_memory() is pinned
    assert not x.is_pinned()
    assert not pinned.clone().is_pinned()
    assert torch.zeros(2, pin_memory=True).is_pinned()
    assert not torch.zeros(2).to_sparse().is_pinned()
    assert x.get_device() == torch.get_device(x) == 0
    x.record_stream(torch.Stream(device="cuda"))
    assert torch.zeros(1, device=x.get_device()).device == CPU
    assert torch.get_device_module("cuda") is torch.cpu
    assert np.asarray(x).tolist() == [0, 0]


def test_default_device_costs_no_mode() -> None:
    torch.set_default_device("cuda")
    assert torch._C._len_torch_function_stack() == 0
    assert torch.get_default_device() == CPU


def test_the_line_of_user_code_is_reported_even_from_inside_torch() -> None:
    nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).type("torch.cuda.HalfTensor")
    line = sys._getframe().f_lineno - 1
    assert {(row.first.file, row.first.line) for row in torchdevice.report().rows} == {(__file__, line)}


def test_devices_that_torch_names_for_itself_are_not_requests() -> None:
    scaler = torch.amp.GradScaler("cuda")
    parameter = nn.Parameter(torch.ones(1))
    scaler.scale(parameter * 2).sum().backward()
    scaler.step(torch.optim.SGD([parameter], lr=1.0))
    assert {row.asked for row in torchdevice.report().rows} == {"cuda"}


def test_decorated_classes_are_reported_at_the_users_line() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.cuda.amp.GradScaler()
    assert {row.first.file for row in torchdevice.report().rows} == {__file__}


def test_a_kernel_for_cuda_serves_the_target(active: None) -> None:
    double = torch.library.custom_op(
        "torchdevice_tests::double",
        lambda x: x * 2,
        mutates_args=(),
        device_types="cuda",
        schema="(Tensor x) -> Tensor",
    )
    assert double(torch.ones(2, device="cuda")).tolist() == [2, 2]


def test_a_kernel_for_the_cpu_is_the_cpus_own(active: None) -> None:
    plus = torch.library.custom_op(
        "torchdevice_tests::plus", lambda x: x + 1, mutates_args=(), device_types="cpu", schema="(Tensor x) -> Tensor"
    )
    plus.register_kernel("cuda")(lambda x: x - 1)
    assert plus(torch.zeros(2, device="cuda")).tolist() == [1, 1]


def test_nested_tensors_of_tensors_follow_the_device(active: None) -> None:
    made = torch.nested.as_nested_tensor([torch.ones(2), torch.ones(3)], device="cuda")
    assert [part.device.type for part in made.unbind()] == ["cpu", "cpu"]


def test_the_class_of_torch_device_is_no_local_one() -> None:
    """torch.compile saves guards on torch.device, and refuses objects whose class is local to a function."""
    assert type(torch.device).__qualname__ == type(torch.device).__name__


def test_a_default_device_can_be_unset(active: None) -> None:
    """torch 2.9 then fails in `torch.get_default_device()`."""
    for device in ("cpu", "cuda"):
        torch.set_default_device(device)
        torch.set_default_device(None)
        assert torch.get_default_device() == torch.device("cpu")
