"""While a TorchFunctionMode is on (a default device is one), everything that moves does what plain torch does."""

from __future__ import annotations

import io
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import torchdevice
from torchdevice.translate import adapters, moves, points


class Empty(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def default_device() -> Iterator[None]:
    torch.set_default_device("cuda" if torchdevice.is_active() else "cpu")
    try:
        yield
    finally:
        torch.set_default_device(None)


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "with torch.device": lambda: torch.device("cuda" if torchdevice.is_active() else "cpu"),
    "set_default_device": default_device,
    "any mode": Empty,
}

# One object of each class whose moving methods are replaced.
EXAMPLES: dict[str, Callable[[], Any]] = {
    points.TENSOR: lambda: torch.arange(4.0),
    points.MODULE: lambda: nn.Linear(2, 2),
    points.PACKED: lambda: nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)]),
    "torch.storage._StorageBase": lambda: torch.arange(4.0).untyped_storage(),
    points.TYPED_STORAGE: lambda: torch.storage.TypedStorage([1.0, 2.0], dtype=torch.float32),
}
MOVING = {moves.convert_to, moves.move_to_cpu, moves.move_to_accelerator}
METHODS = sorted(
    point.path
    for point in points.all_points()
    if point.adapter in MOVING
    and point.path.rpartition(".")[0] in EXAMPLES
    and not point.path.endswith((".ipu", ".hpu"))
)


def outcome(method: str, mode: str) -> tuple[type, str]:
    """What a method gives: under us asked for CUDA, on plain torch for the CPU."""
    owner, _, name = method.rpartition(".")
    thing = EXAMPLES[owner]()
    with MODES[mode]():
        if not torchdevice.is_active():
            moved = thing.cpu()
        elif name == "to":
            moved = thing.to(device="cuda")
        else:
            moved = getattr(thing, name)()
    return type(moved), str(getattr(moved, "device", None))


def test_every_class_that_moves_has_an_example() -> None:
    functional = {"torch._subclasses.functional_tensor.FunctionalTensor"}  # torch's compiler makes these for itself
    assert set(points.MOVERS) - functional == set(EXAMPLES)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", METHODS)
def test_moving_under_a_mode(method: str, mode: str) -> None:
    wanted = outcome(method, mode)
    with torchdevice.redirect(target="cpu"):
        assert outcome(method, mode) == wanted


@pytest.mark.parametrize("mode", MODES)
def test_modules_and_checkpoints_under_a_mode(mode: str, active: None) -> None:
    with MODES[mode]():
        model = nn.Linear(2, 2).to(torch.bfloat16).to("cuda", torch.float64)
        assert {p.dtype for p in model.parameters()} == {torch.float64}
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        loaded = torch.load(file, map_location="cuda")
        assert torch.equal(loaded["weight"], model.weight)
        packed = nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
        assert packed.to("cuda").data.tolist() == packed.data.tolist()
        assert packed.to(torch.float64).data.dtype == torch.float64


# --- which function a mode and a class are shown ---------------------------------------------------------------------

# How functions that make tensors are called, where a size and a device are not what they take.
CALLS: dict[str, Callable[[Any, str], Any]] = {
    "torch.as_tensor": lambda f, d: f([1.0], device=d),
    "torch.asarray": lambda f, d: f([1.0], device=d),
    "torch.empty_permuted": lambda f, d: f((2,), (0,), device=d),
    "torch.empty_quantized": lambda f, d: f((2,), QUANTIZED),
    "torch.empty_strided": lambda f, d: f((2,), (1,), device=d),
    "torch.from_file": lambda f, d: f(__file__, False, 2, device=d),
    "torch.full": lambda f, d: f((2,), 1.0, device=d),
    "torch.full_like": lambda f, d: f(torch.ones(2), 1.0, device=d),
    "torch.linspace": lambda f, d: f(0.0, 1.0, 2, device=d),
    "torch.logspace": lambda f, d: f(0.0, 1.0, 2, device=d),
    "torch.nested.nested_tensor": lambda f, d: f([torch.ones(2)], device=d),
    "torch.normal": lambda f, d: f(0.0, 1.0, (2,), device=d),
    "torch.randint": lambda f, d: f(5, (2,), device=d),
    "torch.randint_like": lambda f, d: f(torch.ones(2), 5, device=d),
    "torch.range": lambda f, d: f(0, 1, device=d),
    "torch.sparse_bsc_tensor": lambda f, d: f([0, 1], [0], [[[1.0]]], device=d),
    "torch.sparse_bsr_tensor": lambda f, d: f([0, 1], [0], [[[1.0]]], device=d),
    "torch.sparse_compressed_tensor": lambda f, d: f([0, 1], [0], [1.0], layout=torch.sparse_csr, device=d),
    "torch.sparse_coo_tensor": lambda f, d: f([[0]], [1.0], device=d),
    "torch.sparse_csc_tensor": lambda f, d: f([0, 1], [0], [1.0], device=d),
    "torch.sparse_csr_tensor": lambda f, d: f([0, 1], [0], [1.0], device=d),
    "torch.tensor": lambda f, d: f([1.0], device=d),
    "torch.tril_indices": lambda f, d: f(2, 2, device=d),
    "torch.triu_indices": lambda f, d: f(2, 2, device=d),
    "torch.Tensor.new": lambda f, d: f(torch.ones(2), 2),
    "torch.Tensor.new_empty_strided": lambda f, d: f(torch.ones(2), (2,), (1,), device=d),
    "torch.Tensor.new_full": lambda f, d: f(torch.ones(2), (2,), 1.0, device=d),
    "torch.Tensor.new_tensor": lambda f, d: f(torch.ones(2), [1.0], device=d),
}
QUANTIZED = torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.quint8)
MAKING = sorted(
    point.path
    for point in points.all_points()
    if point.adapter in {adapters.fresh_tensor, adapters.tensor_like} and point.path.count(".") < 3
)


def shown(path: str) -> list[str]:
    """What a mode of the program is shown by a call, and whether it is the function that the program knows."""
    names: list[str] = []

    class Watching(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            names.append("the function" if func is public else getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    public = pkgutil.resolve_name(path)
    call = CALLS.get(path) or (_on_a_tensor if "_like" in path or "Tensor." in path else _with_a_size)
    with Watching():
        call(public, "cuda" if torchdevice.is_active() else "cpu")
    return names


def _with_a_size(function: Any, device: str) -> None:
    function(2, device=device)


def _on_a_tensor(function: Any, device: str) -> None:
    function(torch.ones(2), *([(2,)] if function.__name__.startswith("new_") else []), device=device)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", MAKING)
def test_a_mode_is_shown_the_function_that_the_program_knows(path: str) -> None:
    wanted = shown(path)
    with torchdevice.redirect(target="cpu"):
        assert shown(path) == wanted
