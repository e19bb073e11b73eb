"""Classes with a `__torch_function__` of their own are shown the functions that their tables hold."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

import torchdevice
from tests.virtual.harness import on

METHODS = ("to", "new_zeros", "new_full", "new_tensor")


def tabled() -> tuple[type, dict[Any, str]]:
    """A class that answers from a table, as torch's own page on extending it shows; both made now."""
    table = {getattr(torch.Tensor, name): name for name in METHODS}

    class Tabled(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return table[func] if func in table else super().__torch_function__(func, types, args, kwargs or {})

    return Tabled, table


def answers(kind: type) -> list[Any]:
    x = torch.ones(2).as_subclass(kind)
    return [x.to("cuda"), x.new_zeros(2), x.new_full((2,), 1.0, device="cuda"), x.new_tensor([1.0])]


def test_a_class_from_before_the_activation() -> None:
    kind, _ = tabled()
    with torchdevice.redirect():
        assert answers(kind) == list(METHODS)
    with torchdevice.redirect():
        assert answers(kind) == list(METHODS)


def test_a_class_that_was_made_while_active() -> None:
    with torchdevice.redirect():
        kind, table = tabled()
        assert all(hasattr(function, "__wrapped__") for function in table)
        assert answers(kind) == list(METHODS)
    with torchdevice.redirect():
        assert answers(kind) == list(METHODS)


@pytest.mark.parametrize("early", [True, False])
def test_what_is_not_in_the_table_keeps_its_class(early: bool, active: None) -> None:
    torchdevice.deactivate() if early else None
    kind, table = tabled()
    table.clear()
    torchdevice.activate()
    x = torch.ones(2).as_subclass(kind)
    assert type(x.to("cuda")) is type(x.to(torch.float64)) is type(x.new_zeros(3)) is kind


class Watching(torch.Tensor):
    seen: ClassVar[list[Any]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def shown_the_moves() -> None:
    class Made(Watching):
        """While active."""

    x = torch.ones(2, device="cuda").as_subclass(Made)
    for name in ("cpu", "cuda"):
        plain = getattr(x.as_subclass(torch.Tensor), name)()
        Watching.seen.clear()
        moved = getattr(x, name)()
        assert Watching.seen[0] is getattr(torch.Tensor, name)
        assert type(moved) is Made
        assert moved.device == plain.device
    Watching.seen.clear()
    assert x.cuda(0, non_blocking=True).tolist() == [1, 1]
    assert Watching.seen[0] is torch.Tensor.cuda


def test_a_move_is_shown_as_it_was_called(active: None) -> None:
    shown_the_moves()


@on("mps")
def test_a_move_that_stays_on_the_accelerator_is_shown_as_it_was_called() -> None:
    torchdevice.activate(policy="accelerate")
    assert torch.ones(2).cpu().device.type == "mps"
    shown_the_moves()
