"""Requests for float64 on a target without it: narrowed with one warning a place, kept on the CPU, or refused."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import torchdevice
from tests.virtual.harness import on

WAYS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "double": lambda x, wide: x.double(),
    "to dtype": lambda x, wide: x.to(torch.float64),
    "to keyword": lambda x, wide: x.to(dtype=torch.float64),
    "to device": lambda x, wide: wide.to("mps"),
    "to device and dtype": lambda x, wide: x.to("mps", torch.float64),
    "cuda": lambda x, wide: wide.cuda(),
    "type": lambda x, wide: x.type(torch.float64),
    "zeros": lambda x, wide: torch.zeros(2, dtype=torch.float64, device="mps"),
    "arange": lambda x, wide: torch.arange(3, dtype=torch.double, device="cuda"),
    "tensor": lambda x, wide: torch.tensor(np.zeros(2), device="mps"),
    "as_tensor": lambda x, wide: torch.as_tensor(np.zeros(2), device="mps"),
    "zeros_like": lambda x, wide: torch.zeros_like(wide, device="mps"),
    "new_zeros": lambda x, wide: x.new_zeros(2, dtype=torch.float64),
    "softmax": lambda x, wide: x.softmax(0, dtype=torch.float64),
    "log_softmax": lambda x, wide: torch.log_softmax(x, 0, dtype=torch.float64),
    "special.softmax": lambda x, wide: torch.special.softmax(x, 0, dtype=torch.float64),
    "special.log_softmax": lambda x, wide: torch.special.log_softmax(x, 0, dtype=torch.float64),
    "float_power_": lambda x, wide: wide.to("mps").float_power_(2),
    "module": lambda x, wide: nn.Linear(2, 2).to("mps").double().weight,
    "wide module": lambda x, wide: nn.Linear(2, 2).double().to("mps").weight,
}


@on("mps:real")
def test_narrowed_with_one_warning_a_place() -> None:
    torchdevice.activate(policy="portable")
    x, wide = torch.ones(2, device="mps"), torch.ones(2, dtype=torch.float64)
    for name, ask in WAYS.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            results = [ask(x, wide) for _ in range(3)]
        assert [(r.dtype, r.device.type) for r in results] == [(torch.float32, "mps")] * 3, name
        texts = [str(w.message) for w in caught if issubclass(w.category, torchdevice.TorchDeviceWarning)]
        assert len(texts) in (1, 2), (name, texts)  # a module has two parameters, but one place
        assert "TORCHDEVICE_FLOAT64=downcast" in texts[0]
        assert caught[0].filename == __file__, name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert x.to(torch.complex128).dtype is x.cdouble().dtype is torch.complex64
    assert any(row.asked == "float64" and row.given == "float32" for row in torchdevice.report().rows)


@on("mps:real", env={"TORCHDEVICE_FLOAT64": "cpu"})
def test_kept_on_the_cpu() -> None:
    warnings.simplefilter("ignore")
    torchdevice.activate(policy="portable")
    x, wide = torch.ones(2, device="mps"), torch.ones(2, dtype=torch.float64)
    for name, ask in WAYS.items():
        result = ask(x, wide)
        assert (result.dtype, result.device.type) == (torch.float64, "cpu"), name


@on("mps:real", env={"TORCHDEVICE_FLOAT64": "error"})
def test_refused_in_torchs_words() -> None:
    torchdevice.activate(policy="portable")
    x, wide = torch.ones(2, device="mps"), torch.ones(2, dtype=torch.float64)
    for ask in WAYS.values():
        with pytest.raises(TypeError, match="Cannot convert a MPS Tensor to float64"):
            ask(x, wide)


@on("mps:real")
def test_other_type_errors_are_the_callers() -> None:
    torchdevice.activate(policy="portable")
    for wrong in (
        lambda: torch.zeros("a"),
        lambda: torch.zeros(2, device="mps").to([]),
        lambda: torch.zeros(2).double(1, 2),
    ):
        with pytest.raises(TypeError) as raised:
            wrong()
        assert "float64" not in str(raised.value)


@on("mps:real")
def test_checkpoints_and_arrays() -> None:
    warnings.simplefilter("ignore")
    torchdevice.activate()
    with torchdevice.suspended():
        file = io.BytesIO()
        torch.save({"w": torch.arange(6, dtype=torch.float64).reshape(2, 3).T, "n": torch.arange(3)}, file)
    file.seek(0)
    loaded = torch.load(file, map_location="cuda")
    assert (loaded["w"].dtype, loaded["w"].device.type) == (torch.float32, "mps")
    assert loaded["w"].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert loaded["n"].dtype is torch.int64
    array = torch.from_numpy(np.arange(3.0))
    assert (array.dtype, array.device.type) == (torch.float32, "mps")


def _arrays_and_checkpoints() -> dict[str, Callable[[], torch.Tensor]]:
    with torchdevice.suspended():
        file = io.BytesIO()
        torch.save(torch.arange(3, dtype=torch.float64), file)

    def load() -> torch.Tensor:
        file.seek(0)
        return torch.load(file, map_location="cuda")

    return {
        "load": load,
        "from_numpy": lambda: torch.from_numpy(np.arange(3.0)),
        "tensor": lambda: torch.tensor(np.ones(2)),
    }


@on("mps:real", env={"TORCHDEVICE_FLOAT64": "cpu"})
def test_arrays_and_checkpoints_kept_on_the_cpu() -> None:
    warnings.simplefilter("ignore")
    torchdevice.activate()
    for name, ask in _arrays_and_checkpoints().items():
        assert (ask().dtype, ask().device.type) == (torch.float64, "cpu"), name


@on("mps:real", env={"TORCHDEVICE_FLOAT64": "error"})
def test_arrays_and_checkpoints_refused() -> None:
    torchdevice.activate()
    for ask in _arrays_and_checkpoints().values():
        with pytest.raises(TypeError, match="float64"):
            ask()


@on("mps:real")
def test_factories_in_compiled_functions_are_narrowed() -> None:
    def positions(x: torch.Tensor) -> torch.Tensor:
        scale = torch.arange(0, 4, 2, dtype=torch.float64, device=x.device) / 4
        return x * (1.0 / 100**scale) + torch.zeros_like(x, dtype=torch.float64)

    expected = positions(torch.ones(2)).float()
    torchdevice.activate(policy="portable")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = torch.compile(positions, backend="eager", fullgraph=True)(torch.ones(2, device="mps"))
    assert found.dtype is torch.float32
    torch.testing.assert_close(found.cpu(), expected)
    assert any("torch.arange requested float64" in str(each.message) for each in caught)


FLOAT8 = [dtype for name, dtype in vars(torch).items() if name.startswith("float8_")]


@on("mps:real")
def test_float8_becomes_float16() -> None:
    """Values of 8 bits fit: models that are published in them load."""
    torchdevice.activate(policy="portable")
    assert len(FLOAT8) >= 4
    ways: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
        lambda small: small.to("mps"),
        lambda small: torch.ones(2, device="mps").to(small.dtype),
        lambda small: torch.zeros(2, dtype=small.dtype, device="mps"),
        lambda small: small.cuda(),
    )
    for dtype in FLOAT8:
        for ask in ways:
            with pytest.warns(torchdevice.TorchDeviceWarning, match=str(dtype).removeprefix("torch.")):
                result = ask(torch.tensor([0.5, 2.0]).to(dtype))
            assert (result.dtype, result.device.type) == (torch.float16, "mps"), dtype
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.tensor([0.5, 2.0]).to(torch.float8_e4m3fn).to("mps").tolist() == [0.5, 2.0]


@on("mps:real")
def test_checkpoints_in_float8_are_read_as_float16() -> None:
    warnings.simplefilter("ignore")
    file = io.BytesIO()
    torch.save({"w": torch.tensor([[0.5, -2.0], [1.5, 3.0]]).to(torch.float8_e5m2).T}, file)
    file.seek(0)
    torch.load(file)  # torch keeps the functions that it found
    torchdevice.activate(policy="portable")
    for weights_only in (True, False):
        file.seek(0)
        loaded = torch.load(file, map_location="cuda", weights_only=weights_only)["w"]
        assert (loaded.dtype, loaded.device.type) == (torch.float16, "mps")
        assert loaded.tolist() == [[0.5, 1.5], [-2.0, 3.0]]
    torchdevice.deactivate()
    file.seek(0)
    assert torch.load(file)["w"].dtype is torch.float8_e5m2


@on("mps:real", env={"TORCHDEVICE_FLOAT64": "error"})
def test_float8_is_refused_on_demand() -> None:
    torchdevice.activate(policy="portable")
    with pytest.raises(TypeError, match="Trying to convert Float8_e4m3fn to the MPS backend"):
        torch.zeros(2).to(torch.float8_e4m3fn).to("mps")


@on("mps:real")
def test_copies_to_mps_wait() -> None:
    torchdevice.activate(policy="portable")
    asked: list[bool] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if function is torch.ops.aten._to_copy.default:
                asked.append(kwargs.get("non_blocking", False))
            if function is torch.ops.aten.copy_.default:
                asked.append(args[2] if len(args) > 2 else False)
            return function(*args, **kwargs)

    x, there, layer = torch.ones(2), torch.zeros(2, device="mps"), nn.Linear(2, 2, bias=False)
    ways: dict[str, Callable[[], Any]] = {
        "to": lambda: x.to("mps", non_blocking=True),
        "to, by position": lambda: x.to("mps", torch.float16, True),
        "to, by device": lambda: x.to(device="mps", non_blocking=True, copy=True),
        "to another": lambda: x.to(there, non_blocking=True),
        "cuda": lambda: x.cuda(non_blocking=True),
        "copy_": lambda: there.copy_(x, non_blocking=True),
        "copy_, by position": lambda: there.copy_(x, True),
        "module": lambda: layer.to("mps", non_blocking=True).weight,
    }
    for name, move in ways.items():
        asked.clear()
        with Watch():
            assert move().device.type == "mps", name
        assert asked == [False], name
    assert there.tolist() == [1.0, 1.0]
    asked.clear()
    with Watch():  # the other way is the caller's business
        x.copy_(there, non_blocking=True)
    assert asked == [True]
