"""Calls that work on CUDA and on the CPU and have no code in the real MPS: each gives what it gives elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm

import torchdevice
from tests.virtual.harness import on

X = torch.arange(6.0).view(2, 3)


def clipped(device: str, clip: Callable[[list[torch.Tensor]], object]) -> torch.Tensor:
    weight = torch.ones(2, 3, device=device, requires_grad=True)
    (weight * X.to(device)).sum().backward()
    clip([weight])
    assert weight.grad is not None
    return weight.grad


CALLS: dict[str, Callable[[str], torch.Tensor]] = {
    "kaiser_window": lambda device: torch.kaiser_window(5, device=device),
    "kaiser_window periodic": lambda device: torch.kaiser_window(5, False, device=device),
    "kaiser_window beta": lambda device: torch.kaiser_window(5, False, 8.0, device=device, dtype=torch.float32),
    "conj_physical_": lambda device: torch.complex(X, X + 1).to(device).conj_physical_(),
    "smm": lambda device: torch.smm(torch.eye(2, device=device).to_sparse(), X.to(device)).to_dense(),
    "sspaddmm": lambda device: torch.sspaddmm(
        X.to(device).to_sparse(), torch.eye(2, device=device).to_sparse(), X.to(device)
    ).to_dense(),
    "clip_grad_norm_": lambda device: clipped(device, lambda each: clip_grad_norm_(each, 1.0, foreach=True)),
    "clip_grad_value_": lambda device: clipped(device, lambda each: clip_grad_value_(each, 1.0, foreach=True)),
    "get_total_norm": lambda device: get_total_norm([X.to(device)], foreach=True),
}


def check(device: str) -> None:
    for name, call in CALLS.items():
        wanted = call("cpu")
        with torchdevice.redirect(policy="portable"):
            found = call("cuda")
            assert found.device.type == device, name
            torch.testing.assert_close(found.to("cpu"), wanted, msg=lambda text, name=name: f"{name}: {text}")


@on("mps:real")
def test_on_mps() -> None:
    check("mps")


@on("cuda")
def test_on_cuda() -> None:
    check("cuda")


def test_on_the_cpu() -> None:
    check("cpu")


@on("mps")
def test_kaiser_windows_on_a_virtual_mps_without_a_session() -> None:
    assert torch.equal(torch.kaiser_window(5, device="mps").cpu(), torch.kaiser_window(5))


@on("xpu")
def test_kaiser_windows_on_a_virtual_xpu_without_a_session() -> None:
    assert torch.equal(torch.kaiser_window(5, device="xpu").cpu(), torch.kaiser_window(5))


@on("cuda")
def test_conjugates_in_place_on_a_virtual_cuda_without_a_session() -> None:
    assert torch.equal(torch.complex(X, X).to("cuda").conj_physical_().cpu(), torch.complex(X, -X))


PRODUCTS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...]]] = {
    "mm": (lambda a, **options: torch.mm(a, a, **options), (3, 3)),
    "bmm": (lambda a, **options: torch.bmm(a, a, **options), (2, 3, 3)),
    "addmm": (lambda a, **options: torch.addmm(a, a, a, beta=2, alpha=3, **options), (3, 3)),
    "baddbmm": (lambda a, **options: torch.baddbmm(a, a, a, beta=2, alpha=3, **options), (2, 3, 3)),
}


@on("mps:real")
def test_products_with_a_dtype_of_their_own() -> None:
    torchdevice.activate(policy="portable")
    for name, (product, shape) in PRODUCTS.items():
        half = torch.rand(shape).half()
        found = product(half.to("cuda"), out_dtype=torch.float32)
        assert found.dtype is torch.float32
        torch.testing.assert_close(found.cpu(), product(half.float()), msg=lambda text, name=name: f"{name}: {text}")


def quantized(x: torch.Tensor) -> list[Any]:
    by_tensor = torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)
    scales, zeros = torch.tensor([0.1, 0.2], device=x.device), torch.zeros(2, dtype=torch.int64, device=x.device)
    by_channel = torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8)
    return [each for q in (by_tensor, by_channel) for each in (q.dequantize().tolist(), q.int_repr().tolist())]


@on("mps:real")
def test_quantized_tensors_stay_on_the_cpu() -> None:
    wanted = quantized(X)
    torchdevice.activate(policy="portable")
    assert quantized(X.to("cuda")) == wanted
    assert torch.quantize_per_tensor(X.to("cuda"), 0.1, 10, torch.quint8).device.type == "cpu"


@on("mps:real")
def test_nested_tensors_of_the_strided_layout_stay_on_the_cpu() -> None:
    wanted = torch.nested.as_nested_tensor([X[0], X[0, :1]]).to_padded_tensor(0.0).tolist()
    torchdevice.activate(policy="portable")
    made = torch.nested.as_nested_tensor([X.to("cuda")[0], X.to("cuda")[0, :1]])
    assert made.device.type == "cpu"
    assert made.to_padded_tensor(0.0).tolist() == wanted
    assert any(row.operator == "aten::_nested_tensor_from_tensor_list" for row in torchdevice.report().fallbacks)
