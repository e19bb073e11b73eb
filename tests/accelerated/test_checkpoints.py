"""Checkpoints on a host with an accelerator: what plain torch reads is read, and what is written plain torch reads."""

from __future__ import annotations

import inspect
import io
import pickle
import pkgutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.package import PackageExporter, PackageImporter, package_exporter
from torch.utils._pytree import tree_map

import torchdevice

pytestmark = [pytest.mark.accelerated, pytest.mark.filterwarnings("ignore")]
TARGET = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "none"
POLICIES = ["accelerate", "portable"]
LOCATIONS = [None, "cpu", "cuda", torch.device("cpu"), {"cpu": "cuda"}]
KNOWS_SAFETENSORS = "safetensors" in inspect.getsource(torch.load)


class Holding(torch.Tensor):
    """A tensor that holds another one instead of memory."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls: type[Holding], held: torch.Tensor) -> Holding:
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=held.device)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def unwrapped(value: Any) -> Any:
            return value.held if isinstance(value, cls) else value

        return operator(*tree_map(unwrapped, args), **tree_map(unwrapped, kwargs or {}))


def saved(thing: Any) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(thing, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("location", [*LOCATIONS, "meta"], ids=str)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_tensor_that_holds_another_goes_where_a_plain_one_goes(policy: str, location: Any) -> None:
    with torchdevice.redirect(policy=policy):
        made = torch.ones(2, device="cuda")
        there = torch.load(saved(made), map_location=location)
        loaded = torch.load(saved(Holding(made)), map_location=location, weights_only=False)
    assert type(loaded) is Holding
    assert loaded.device.type == loaded.held.device.type == there.device.type
    assert there.device.type == "meta" or loaded.held.tolist() == [1, 1]


@pytest.mark.parametrize("location", [*LOCATIONS, {f"{TARGET}:0": "cpu", TARGET: "cpu"}], ids=str)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_package_is_read_as_a_checkpoint(policy: str, location: Any, tmp_path: Path) -> None:
    with torchdevice.redirect(policy=policy):
        weights = {"here": torch.ones(2, device="cuda"), "there": torch.full((2,), 3.0)}
        with PackageExporter(tmp_path / "package.pt") as exporter:
            exporter.save_pickle("model", "weights.pkl", weights)
        loaded = PackageImporter(tmp_path / "package.pt").load_pickle("model", "weights.pkl", location)
        wanted = torch.load(saved(weights), map_location=location)
    assert {name: each.device for name, each in loaded.items()} == {name: each.device for name, each in wanted.items()}
    assert {name: each.tolist() for name, each in loaded.items()} == {"here": [1, 1], "there": [3, 3]}


@pytest.mark.parametrize("location", [None, "cpu", "cuda"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_script_in_a_package(policy: str, location: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_exporter, "_gate_torchscript_serialization", False)
    with torchdevice.redirect(policy=policy):
        with PackageExporter(tmp_path / "package.pt") as exporter:
            exporter.save_pickle("model", "script.pkl", torch.jit.script(torch.nn.Linear(2, 2).cuda()))
        loaded = PackageImporter(tmp_path / "package.pt").load_pickle("model", "script.pkl", location)
    on_cpu = location == "cpu" and policy == "portable"
    assert loaded.weight.device.type == ("cpu" if on_cpu else TARGET)


@pytest.mark.skipif(not KNOWS_SAFETENSORS, reason="torch.load of this torch does not know safetensors")
@pytest.mark.parametrize("location", [None, "cpu", "cuda"])
@pytest.mark.parametrize("policy", POLICIES)
def test_torch_load_reads_safetensors(policy: str, location: Any, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file({"w": torch.ones(2)}, tmp_path / "weights.safetensors")
    with torchdevice.redirect(policy=policy):
        loaded = torch.load(tmp_path / "weights.safetensors", map_location=location)["w"]
    on_cpu = location != "cuda" and policy == "portable"
    assert loaded.device.type == ("cpu" if on_cpu else TARGET)
    assert loaded.tolist() == [1, 1]


def locations(data: bytes) -> set[str]:
    """Where a checkpoint says that its storages were."""
    found: set[str] = set()

    def note(storage: Any, location: str) -> Any:
        found.add(location)
        return storage

    with torchdevice.suspended():
        torch.load(io.BytesIO(data), map_location=note)
    return found


@pytest.mark.parametrize("new_format", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_program_moved_to_the_cpu_is_saved_as_such(policy: str, new_format: bool) -> None:
    buffer = io.BytesIO()
    with torchdevice.redirect(policy=policy):
        model = torch.nn.Linear(2, 2).cuda()
        weights = {name: value.cpu() for name, value in model.state_dict().items()}
        torch.save([weights, model.cpu().state_dict()], buffer, _use_new_zipfile_serialization=new_format)
        again = torch.load(io.BytesIO(buffer.getvalue()))
        assert {value.device for part in again for value in part.values()} == {torch.zeros(1).device}
    assert locations(buffer.getvalue()) == {"cpu"}
    plain = torch.load(io.BytesIO(buffer.getvalue()))
    assert {value.device.type for part in plain for value in part.values()} == {"cpu"}
    assert plain[0]["weight"].tolist() == weights["weight"].tolist()


def test_what_is_truly_on_the_accelerator_says_so() -> None:
    x = torch.ones(2, device=TARGET)
    plain = locations(saved(x).getvalue())
    assert plain != {"cpu"}
    with torchdevice.redirect(policy="portable"):
        assert locations(saved(torch.ones(2, device="cuda")).getvalue()) == plain
    with torchdevice.redirect(policy="accelerate"), torchdevice.cpu_override():
        assert locations(saved(x).getvalue()) == plain


def test_another_device_than_the_one_that_stands_for_the_cpu_says_so() -> None:
    if torch.accelerator.device_count() < 2:
        pytest.skip("there is one device")
    with torchdevice.redirect(policy="accelerate"):
        assert locations(saved(torch.ones(2, device=f"{TARGET}:1")).getvalue()) == {f"{TARGET}:1"}


def test_a_pickle_comes_back_to_the_accelerator() -> None:
    with torchdevice.redirect(policy="accelerate"):
        assert pickle.loads(pickle.dumps(torch.ones(2))).device.type == TARGET


def test_a_package_says_where_its_tensors_were(tmp_path: Path) -> None:
    with torchdevice.redirect(policy="accelerate"), PackageExporter(tmp_path / "package.pt") as exporter:
        exporter.save_pickle("model", "weights.pkl", {"w": torch.ones(2, device="cuda").cpu()})
    loaded = PackageImporter(tmp_path / "package.pt").load_pickle("model", "weights.pkl")
    assert loaded["w"].device.type == "cpu"


class Scaled(torch.nn.Module):
    """Traced, its factors are constants of the graph, and 0.5 is one of float64."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.factors = torch.tensor([2.0, 3.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * 0.5 * self.factors


@pytest.mark.parametrize("location", ["cpu", "cuda"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("reader", ["torch.jit.load", "torch.load"])
def test_an_archive_with_a_constant_of_float64(reader: str, policy: str, location: str) -> None:
    x = torch.ones(1, 2)
    traced = torch.jit.trace(Scaled(), (x,))
    buffer = io.BytesIO()
    torch.jit.save(traced, buffer)
    buffer.seek(0)
    with torchdevice.redirect(policy=policy):
        options = {"weights_only": False} if reader == "torch.load" else {}
        loaded = pkgutil.resolve_name(reader)(buffer, map_location=location, **options)
        where = torch.zeros(1, device=location).device
        computed = loaded(x.to(where))
        assert {each.device for each in (computed, *loaded.parameters())} == {where}
        assert torch.allclose(computed.to("cpu:-1"), traced(x))


def test_an_archive_with_weights_of_float64() -> None:
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 2).double(), (torch.ones(1, 2).double(),)), buffer)
    buffer.seek(0)
    with torchdevice.redirect():
        weight = torch.jit.load(buffer, map_location="cuda").weight
    assert weight.device.type == TARGET
    assert weight.dtype is (torch.float32 if TARGET == "mps" else torch.float64)
