"""On a host with an accelerator: everything that user code sees is on it, and nothing breaks because of that.

Runs on whatever accelerator torch reports. Without one these tests are not selected; `tests/test_accelerated.py` runs
them on virtual ones, `make test-cuda` on a real one.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import rnn
from torch.utils import data
from torch.utils.checkpoint import checkpoint

import torchdevice.virtual
from tests.virtual import harness

pytestmark = [pytest.mark.accelerated, pytest.mark.filterwarnings("ignore")]
TARGET = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "none"


@pytest.fixture(autouse=True)
def _accelerate() -> Iterator[None]:
    with torchdevice.redirect(policy="accelerate"):
        yield


def loaded(where: Any) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(torch.ones(2), buffer)
    buffer.seek(0)
    return torch.load(buffer, map_location=where)


def compiled(program: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    torch._dynamo.reset()
    return torch.compile(program, backend="aot_eager", fullgraph=True)(torch.zeros(2))


def in_cpu_override(make: Callable[[], Any]) -> Any:
    with torchdevice.cpu_override():
        return make()


def with_default_type(name: str, make: Callable[[], Any]) -> Any:
    torch.set_default_tensor_type(name)
    try:
        return make()
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")


class Own(torch.Tensor):
    """A class of the user's: made by torch's own `__new__`."""


ON_THE_ACCELERATOR: dict[str, Callable[[], Any]] = {
    "randn": lambda: torch.randn(2),
    "tensor": lambda: torch.tensor([1.0]),
    "tensor of tensors": lambda: torch.tensor([torch.tensor(1.0), torch.tensor(2.0)]),
    "arange": lambda: torch.arange(3),
    "randperm": lambda: torch.randperm(4),
    "normal": lambda: torch.normal(0.0, 1.0, (2,)),
    "window": lambda: torch.hann_window(4),
    "fftfreq": lambda: torch.fft.fftfreq(4),
    "as_tensor": lambda: torch.as_tensor([1]),
    "asarray of numpy": lambda: torch.asarray(np.ones(2, "f4")),
    "from_numpy": lambda: torch.from_numpy(np.ones(2, "f4")),
    "from_numpy float64": lambda: torch.from_numpy(np.ones(2)),
    "frombuffer": lambda: torch.frombuffer(bytearray(8), dtype=torch.float32),
    "sobol": lambda: torch.quasirandom.SobolEngine(2).draw(3),
    "scrambled sobol": lambda: torch.quasirandom.SobolEngine(2, scramble=True, seed=1).draw_base2(2),
    "sobol out": lambda: torch.quasirandom.SobolEngine(2).draw(3, out=torch.empty(3, 2)),
    "collated": lambda: data.default_collate([{"x": np.ones(2, "f4")}, {"x": np.ones(2, "f4")}])["x"],
    "converted": lambda: data.default_convert([np.ones(2, "f4")])[0],
    "storage": lambda: torch.UntypedStorage(8),
    "tensor of a storage": lambda: torch.empty(0).set_(torch.UntypedStorage(8)),
    "legacy": lambda: torch.FloatTensor([1.0]),
    "legacy cuda": lambda: torch.cuda.FloatTensor([1.0]),
    "default type": lambda: torch.Tensor([1.0]),
    "default type of a size": lambda: torch.Tensor(2, 3),
    "default type of numpy": lambda: torch.Tensor(np.ones(2)),
    "default type of nothing": lambda: torch.Tensor(),
    "default type of a tensor": lambda: torch.Tensor(torch.ones(2)),
    "default type as a parameter": lambda: nn.Parameter(torch.Tensor(2, 2)),
    "default type set": lambda: with_default_type("torch.cuda.FloatTensor", lambda: torch.Tensor([1.0])),
    "subclass": lambda: Own(torch.ones(2)),
    "device cpu": lambda: torch.randn(2, device="cpu"),
    "device cpu:0": lambda: torch.randn(2, device="cpu:0"),
    "device object": lambda: torch.randn(2, device=torch.device("cpu")),
    "cpu()": lambda: torch.randn(2).cpu(),
    "to cpu": lambda: torch.randn(2).to("cpu"),
    "cuda": lambda: torch.randn(2, device="cuda"),
    "cuda:9": lambda: torch.randn(2, device="cuda:9"),
    "mps": lambda: torch.randn(2).to("mps:3"),
    "int": lambda: torch.randn(2, device=0),
    "linear": lambda: nn.Linear(2, 2).weight,
    "linear cpu": lambda: nn.Linear(2, 2, device="cpu").weight,
    "module cpu": lambda: nn.Linear(2, 2).cpu().weight,
    "module to cpu": lambda: nn.Linear(2, 2).to("cpu").weight,
    "batch norm": lambda: nn.BatchNorm1d(3).running_mean,
    "transformer": lambda: nn.Transformer(8, 2, 1, 1, 8).encoder.layers[0].linear1.weight,
    "encoder": lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()(torch.randn(2, 3, 8)),
    "lstm": lambda: nn.LSTM(4, 3)(torch.randn(3, 2, 4))[0],
    "packed": lambda: nn.LSTM(4, 3)(rnn.pack_padded_sequence(torch.randn(3, 2, 4), torch.tensor([3, 2])))[0].data,
    "packed cpu": lambda: rnn.pack_sequence([torch.ones(3, 2), torch.ones(2, 2)]).cpu().data,
    "distribution": lambda: torch.distributions.Normal(0.0, 1.0).sample((2,)),
    "stft": lambda: torch.stft(torch.randn(100), 16, return_complex=True, window=torch.hann_window(16)).real,
    "generator": lambda: torch.randn(2, generator=torch.Generator().manual_seed(0)),
    "cpu generator": lambda: torch.randn(2, generator=in_cpu_override(lambda: torch.Generator("cpu"))),
    "default generator": lambda: torch.randn(2, generator=torch.manual_seed(0), device="cpu"),
    "default generator, device": lambda: torch.randn(2, generator=torch.manual_seed(0), device=torch.device("cpu")),
    "indexing": lambda: torch.zeros(3)[torch.tensor([True, False, True])],
    "cat": lambda: torch.cat([torch.zeros(2), torch.zeros(2, device="cpu")]),
    "new": lambda: torch.zeros(2).new_tensor([1.0]),
    "deepcopy": lambda: copy.deepcopy(nn.Linear(2, 2)).weight,
    "pickle": lambda: pickle.loads(pickle.dumps(torch.ones(2))),
    "load": lambda: loaded(None),
    "load cpu": lambda: loaded("cpu"),
    "load callable": lambda: loaded(lambda storage, _: storage),
    "load dict": lambda: loaded({"cuda:0": "cpu"}),
    "compiled factories": lambda: compiled(lambda x: x + torch.zeros(2) + torch.ones(2, device="cpu")),
    "compiled moves": lambda: compiled(lambda x: x.cpu() + x.to("cpu") + x.to("cuda")),
    "default": lambda: torch.zeros(1, device=torch.get_default_device()),
    "numpy round trip": lambda: torch.from_numpy(torch.ones(2).cpu().numpy() * 2),
    "tensor_split": lambda: torch.tensor_split(torch.zeros(4), torch.tensor([1, 2]))[0],
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))(torch.zeros(1, 2)),
    "vmap": lambda: torch.func.vmap(lambda row: row + torch.ones(2))(torch.zeros(3, 2)),
    "scripted": lambda: torch.jit.script(scripted)(torch.zeros(2)),
    "scripted module": lambda: torch.jit.script(Scripted())(torch.zeros(2)),
}


def scripted(x: torch.Tensor) -> torch.Tensor:
    return x + torch.arange(2) + torch.ones(2, device="cuda")


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + scripted(x)


@pytest.mark.parametrize("make", ON_THE_ACCELERATOR.values(), ids=ON_THE_ACCELERATOR.keys())
def test_it_is_on_the_accelerator(make: Callable[[], Any]) -> None:
    assert make().device.type == TARGET


def test_a_device_that_was_asked_for_is_the_accelerator() -> None:
    asked, _, backing = os.environ.get("TORCHDEVICE_VIRTUAL", "").partition("@")
    installed = torchdevice.virtual.installed()
    if not asked:
        assert installed is None
        return
    assert installed is not None
    assert installed.device == TARGET == asked.partition(":")[0]
    assert installed.on == (backing or harness.COMPUTING or "cpu")


def test_device_objects_compare_equal_to_where_tensors_are() -> None:
    for spec in ("cpu", "cuda:0", TARGET + ":0"):
        assert torch.device(spec) == torch.zeros(1, device=spec).device


@pytest.mark.skipif(TARGET != "mps", reason="only of MPS a machine has one device and no more")
def test_no_index_is_the_first_device() -> None:
    """In plain torch `torch.device("mps")` is not equal to the device of any tensor."""
    spelled = [torch.device("mps"), torch.device("mps:0"), torch.device("mps", 0), torch.device(type="mps")]
    spelled += [torch.device("cuda"), torch.device("cuda:0"), torch.zeros(1).device, torch.device(torch.device("mps"))]
    assert {(device, device.index) for device in spelled} == {(torch.zeros(1, device="mps").device, 0)}
    with torchdevice.suspended():
        assert torch.device("mps", 0) == torch.zeros(1, device="mps").device


def test_the_override_toggles_and_every_such_request_is_the_cpu() -> None:
    asked = ["cpu:-1", "cpu", None, "cpu:-1", "cpu"]
    assert [torch.zeros(1, device=device).is_cpu for device in asked] == [True, True, False, True, False]
    assert torch.zeros(2).to("cpu:-1").is_cpu
    assert torchdevice.status().override
    assert nn.Linear(2, 2).to("cpu:-1").weight.is_cpu
    assert not torchdevice.status().override


def test_the_override_scope_nests_and_unwinds() -> None:
    with torchdevice.cpu_override():
        with torchdevice.cpu_override():
            assert torch.zeros(1).cpu().is_cpu
        assert torch.zeros(1, device="cpu").is_cpu
    assert not torch.zeros(1, device="cpu").is_cpu


def test_numpy_and_lists() -> None:
    x = torch.arange(3.0)
    assert x.numpy().tolist() == np.asarray(x).tolist() == x.tolist() == [0, 1, 2]
    assert float(x.detach().cpu().numpy().mean()) == 1
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.ones(1, requires_grad=True).numpy()


MISSING = "mps" if TARGET == "cuda" else "cuda"


class Samples(data.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        assert data.get_worker_info() is None or torch.zeros(1, device=MISSING).is_cpu
        return {"x": torch.randn(3), "n": np.ones(2, "f4"), "y": index, "s": "text", "t": (torch.zeros(1), [1.0])}


@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 2}, {"pin_memory": True}, {"num_workers": 2, "pin_memory": True}, {"shuffle": True}],
    ids=str,
)
def test_batches_arrive_on_the_accelerator(options: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0) if options.get("shuffle") else None
    batches = list(data.DataLoader(Samples(), batch_size=2, generator=generator, **options))
    assert len(batches) == 4
    for batch in batches:
        tensors = (batch["x"], batch["n"], batch["y"], batch["t"][0], batch["t"][1][0])
        assert {tensor.device.type for tensor in tensors} == {TARGET}


def test_workers_can_read_datasets_that_sit_on_the_accelerator() -> None:
    samples = data.TensorDataset(torch.arange(8.0))
    subset = data.Subset(data.ConcatDataset([samples, samples]), range(12))
    seen = [value for (batch,) in data.DataLoader(subset, batch_size=4, num_workers=2) for value in batch.tolist()]
    assert seen == [*range(8), *range(4)]
    assert samples.tensors[0].device.type == TARGET


def test_samplers_and_splits() -> None:
    generator = torch.Generator().manual_seed(0)
    assert len(data.random_split(range(4), [2, 2], generator=generator)) == 2
    assert len(list(data.WeightedRandomSampler(torch.ones(4).tolist(), 4, generator=generator))) == 4
    assert sorted(data.SubsetRandomSampler(range(4), generator=generator)) == [0, 1, 2, 3]
    torch.set_rng_state(torch.get_rng_state().cpu())


def train(steps: int = 20) -> list[float]:
    torch.manual_seed(0)
    with torchdevice.cpu_override():  # the same numbers whatever the accelerator's generator gives
        start = torch.Generator("cpu").manual_seed(0)
    x, weights = (
        torch.randn(16, 4, generator=start),
        [torch.randn(8, 4, generator=start), torch.randn(1, 8, generator=start)],
    )
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    with torch.no_grad():
        for layer, weight in zip((model[0], model[2]), weights, strict=True):
            layer.weight.copy_(weight)
            layer.bias.zero_()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert {parameter.device.type for parameter in model.parameters()} == {torch.zeros(1).device.type}
    return losses


def test_a_script_without_any_device_trains_as_on_the_cpu() -> None:
    ours = train()
    with torchdevice.redirect(target="cpu"):
        plain = train()
    assert ours[-1] < ours[0] / 2
    assert ours == pytest.approx(plain, rel=1e-3)


def test_portable_leaves_none_and_cpu_alone() -> None:
    with torchdevice.redirect(policy="portable"):
        assert torch.zeros(1).is_cpu
        assert torch.zeros(1, device="cpu").is_cpu
        assert nn.Linear(1, 1).weight.is_cpu
        assert torch.zeros(1, device="cuda").device.type == TARGET
        assert torch.zeros(1, device="xpu:5").device.type == TARGET
        assert torch.zeros(1).cuda().cpu().is_cpu
        with pytest.raises(TypeError, match="convert"):
            torch.zeros(1, device="cuda").numpy()


def test_a_default_device_that_the_user_sets_wins() -> None:
    with torch.device("meta"):
        assert torch.zeros(1).is_meta
        assert nn.Linear(2, 2).weight.is_meta
    torch.set_default_device("cuda")
    try:
        assert torch.zeros(1).device.type == TARGET
    finally:
        torch.set_default_device(None)


def test_torch_itself_keeps_its_cpu_tensors() -> None:
    optimizer = torch.optim.Adam(nn.Linear(2, 2).parameters())
    optimizer.param_groups[0]["params"][0].grad = torch.ones(2, 2)
    optimizer.step()
    assert next(iter(optimizer.state.values()))["step"].is_cpu
    assert "tensor" in repr(torch.randn(3))


def test_everything_is_restored() -> None:
    before = {name: getattr(torch.Tensor, name) for name in ("cpu", "numpy", "to", "random_")}
    torchdevice.deactivate()
    plain = {name: getattr(torch.Tensor, name) for name in before}
    assert all(before[name] is not plain[name] for name in before)
    assert torch.zeros(1).is_cpu


def test_accelerator_functions_take_devices_that_are_not_here() -> None:
    absent = next(kind for kind in ("cuda", "mps", "xpu") if kind != TARGET)
    with torchdevice.redirect():
        torch.accelerator.synchronize(absent)
        torch.accelerator.set_device_index(absent)
        assert torch.accelerator.current_stream(absent).device.type == TARGET


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_draws_the_same_numbers_again(reentrant: bool) -> None:
    x = torch.ones(64, device="cuda", requires_grad=True)
    y = checkpoint(nn.functional.dropout, x, 0.5, use_reentrant=reentrant)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


@pytest.mark.parametrize("policy", ["accelerate", "portable"])
def test_a_default_type_of_the_cpu_takes_the_other_back(policy: str) -> None:
    with torchdevice.redirect(policy=policy):
        made = with_default_type("torch.cuda.FloatTensor", lambda: torch.zeros(1))
        after = torch.zeros(1)
    assert made.device.type == TARGET
    assert after.device.type == (TARGET if policy == "accelerate" else "cpu")
    assert torch.zeros(1).dtype == torch.float32
    with torchdevice.suspended():
        assert torch.zeros(1).device.type == "cpu"


@pytest.mark.parametrize("kind", ["FloatTensor", "ByteTensor", "LongTensor"])
@pytest.mark.parametrize("given", [lambda x: x, lambda x: x.cpu(), lambda x: x.untyped_storage()])
def test_a_legacy_type_of_a_tensor_is_a_view_of_it(kind: str, given: Callable[[torch.Tensor], Any]) -> None:
    dtype = getattr(torch, kind).dtype
    source = given(torch.zeros(4, dtype=dtype))
    for maker in (getattr(torch, kind), getattr(torch.cuda, kind)):
        made = maker(source)
        assert (made.device.type, made.dtype) == (TARGET, dtype)
        made[0] = 7
        assert maker(source).tolist() == [7, 0, 0, 0]


def test_a_legacy_type_of_another_dtype_is_refused() -> None:
    with pytest.raises(TypeError, match="expected TensorOptions"):
        torch.ByteTensor(torch.zeros(2))
