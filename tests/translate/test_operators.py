"""Operators of a program's own with a kernel for an accelerator that is not here."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch

import torchdevice
from tests.virtual.harness import on

Kernel = Callable[[torch.Tensor], torch.Tensor]


def defined(namespace: str, *keys: str) -> torch.library.Library:
    """An operator that adds 1, 2, … by the place of its key."""
    library = torch.library.Library(namespace, "DEF")
    library.define("f(Tensor x) -> Tensor")
    for number, key in enumerate(keys, start=1):
        library.impl("f", lambda x, number=number: x + number, key)
    return library


def by_library(namespace: str) -> tuple[Kernel, object]:
    kept = defined(namespace, "CUDA")
    return getattr(torch.ops, namespace).f, kept


def by_library_of_a_key(namespace: str) -> tuple[Kernel, object]:
    kept = defined(namespace), torch.library.Library(namespace, "IMPL", "CUDA")
    kept[1].impl("f", lambda x: x + 1)
    return getattr(torch.ops, namespace).f, kept


def by_decorator(namespace: str) -> tuple[Kernel, object]:
    torch.library.define(f"{namespace}::f", "(Tensor x) -> Tensor")
    torch.library.impl(f"{namespace}::f", "cuda")(lambda x: x + 1)
    return getattr(torch.ops, namespace).f, None


def by_register_kernel(namespace: str) -> tuple[Kernel, object]:
    torch.library.define(f"{namespace}::f", "(Tensor x) -> Tensor")
    torch.library.register_kernel(f"{namespace}::f", "cuda", lambda x: x + 1)
    return getattr(torch.ops, namespace).f, None


def by_custom_op(namespace: str) -> tuple[Kernel, object]:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    f.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    return torch.library.custom_op(f"{namespace}::f", f, mutates_args=(), device_types="cuda"), None


WAYS = {
    "library": by_library,
    "library_of_a_key": by_library_of_a_key,
    "decorator": by_decorator,
    "register_kernel": by_register_kernel,
    "custom_op": by_custom_op,
}


def check_ways(device: str) -> None:
    for name, way in WAYS.items():
        with torchdevice.redirect(policy="portable"):
            operator, kept = way(f"served_{name}")
            x = torch.zeros(2, device="cuda")
            assert x.device.type == device
            assert operator(x).tolist() == [1, 1], name
            assert operator(x).device == x.device
        del kept


def check_order(device: str) -> None:
    """The program's own kernel for the CPU comes first, whenever it comes; so does one for all devices."""
    for number, (keys, added) in enumerate(
        {("CUDA", "CPU"): 2, ("CPU", "CUDA"): 1, ("CUDA", "XPU"): 1, ("CUDA", "CompositeExplicitAutograd"): 2}.items()
    ):
        with torchdevice.redirect(policy="portable"):
            kept = defined(f"ordered_{number}", *keys)
            x = torch.zeros(2, device="cuda")
            assert getattr(torch.ops, f"ordered_{number}").f(x).tolist() == [added, added], keys
            assert x.device.type == device
        del kept


@pytest.mark.filterwarnings("ignore")
def test_every_way_to_register_a_kernel() -> None:
    check_ways("cpu")


def test_another_kernel_comes_first() -> None:
    check_order("cpu")


@on("mps:real")
def test_every_way_to_register_a_kernel_on_mps() -> None:
    check_ways("mps")


@on("mps:real")
def test_another_kernel_comes_first_on_mps() -> None:
    check_order("mps")


def test_gradients_of_a_kernel_for_autograd(active: None) -> None:
    kept = defined("with_gradient", "CUDA")

    class Tenfold(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            with torch._C._AutoDispatchBelowAutograd():
                return torch.ops.with_gradient.f(x)

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 10

    kept.impl("f", Tenfold.apply, "AutogradCUDA")
    x = torch.zeros(2, device="cuda", requires_grad=True)
    torch.ops.with_gradient.f(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [10, 10]


@pytest.mark.parametrize("ends", ["session", "library", "collected"])
def test_it_ends_with_the_session_and_with_the_library(ends: str) -> None:
    with torchdevice.redirect(target="cpu"):
        kept = defined(f"ending_{ends}", "CUDA")
        operator = getattr(torch.ops, f"ending_{ends}").f.default
        name = operator.name()
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")
        if ends == "library":
            kept._destroy()
        if ends == "collected":
            del kept, operator
            gc.collect()
        if ends != "session":
            assert not torch._C._dispatch_get_registrations_for_dispatch_key("CPU").count(name)
    assert not torch._C._dispatch_get_registrations_for_dispatch_key("CPU").count(name)


def test_kernels_of_torch_itself_are_left(active: None) -> None:
    before = torchdevice.status().redirected_calls
    exec(
        compile(
            "library = torch.library.Library('of_torch', 'DEF'); library.define('f(Tensor x) -> Tensor');"
            "library.impl('f', lambda x: x, 'CUDA')",
            f"{torch.__path__[0]}/distributed/made_up.py",
            "exec",
        ),
        {"torch": torch},
    )
    assert torchdevice.status().redirected_calls == before
