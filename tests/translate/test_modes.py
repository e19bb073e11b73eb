"""While a TorchFunctionMode is on (a default device is one), everything that moves does what plain torch does."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import torchdevice
from torchdevice.translate import moves, points


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
