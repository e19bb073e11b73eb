"""Calls for which MPS returns wrong values are made in another way, unless the user turns that off."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import torchdevice
from tests.virtual.harness import on
from torchdevice import fallback
from torchdevice._torch.core import torch_release
from torchdevice.cli import run

OFF = {"TORCHDEVICE_MPS_WORKAROUNDS": "0"}


class Asynchronous(TorchDispatchMode):
    """Counts the copies that do not block."""

    def __init__(self) -> None:
        super().__init__()
        self.copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default:
            self.copies += bool(kwargs.get("non_blocking"))
        elif func is torch.ops.aten.copy_.default:
            self.copies += bool(args[2] if len(args) > 2 else kwargs.get("non_blocking"))
        return func(*args, **kwargs)


def asynchronous_copies() -> int:
    x, there = torch.ones(2), torch.zeros(2, device="mps")
    with Asynchronous() as seen:
        x.to("mps", non_blocking=True)
        x.to("cuda", torch.float16, True)
        x.cuda(non_blocking=True)
        there.copy_(x, non_blocking=True)
        there.copy_(x, True)
        nn.Linear(2, 2, bias=False).to("cuda", non_blocking=True)
    return seen.copies


@on("mps")
def test_copies_to_mps_block() -> None:
    torchdevice.activate(policy="portable")
    assert asynchronous_copies() == 0


@on("mps", env=OFF)
def test_copies_do_not_block_if_workarounds_are_off() -> None:
    torchdevice.activate(policy="portable")
    assert asynchronous_copies() == 6


@on("cuda")
def test_copies_to_other_devices_are_as_requested() -> None:
    torchdevice.activate(policy="portable")
    with Asynchronous() as seen:
        torch.ones(2).to("cuda", non_blocking=True)
    assert seen.copies == 1


def fallen() -> set[str]:
    x = torch.arange(25.0, device="mps").reshape(1, 1, 5, 5)
    nn.functional.adaptive_max_pool2d(x, (3, 3))
    return {record.operator for record in fallback.totals()}


@on("mps:real")
def test_a_kernel_that_is_wrong_is_not_called() -> None:
    torchdevice.activate(policy="portable")
    assert fallen() == ({"aten::adaptive_max_pool2d"} if torch_release() < (2, 14) else set())


@on("mps:real", env=OFF)
def test_a_kernel_that_is_wrong_is_called_if_workarounds_are_off() -> None:
    torchdevice.activate(policy="portable")
    assert fallen() == set()


@pytest.mark.parametrize(("words", "value"), [((), None), (("--no-mps-workarounds",), "0")])
def test_the_option_sets_the_variable(words: tuple[str, ...], value: str | None) -> None:
    options = run.parser().parse_args(list(words))
    assert run.settings(options).get("TORCHDEVICE_MPS_WORKAROUNDS") == value
