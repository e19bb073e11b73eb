"""Attention over jagged nested tensors, against attention over each sequence on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

import torchdevice
from tests.virtual.harness import on

SETTINGS: list[dict[str, Any]] = [{}, {"is_causal": True}, {"scale": 0.2}, {"is_causal": True, "scale": 0.2}]
LENGTHS = ((3, 5, 1), (2, 2, 4))  # of the queries, of the keys and values


def _sequences(lengths: tuple[int, ...], *inner: int) -> list[torch.Tensor]:
    return [torch.randn(length, *inner, device="cpu") for length in lengths]


def _jagged(parts: list[torch.Tensor], device: str) -> torch.Tensor:
    return torch.nested.nested_tensor(parts, layout=torch.jagged, device=device, requires_grad=True)


def _compare(device: str, heads: int, settings: dict[str, Any]) -> None:
    inner = (heads, 4) if heads else (4,)
    crossing = not settings.get("is_causal")  # with keys of other lengths
    given = [_sequences(LENGTHS[0], *inner), *(_sequences(LENGTHS[crossing], *inner) for _ in range(2))]
    tensors = [_jagged(parts, device) for parts in given]
    turned = [each.transpose(1, 2) for each in tensors] if heads else tensors
    found = scaled_dot_product_attention(*turned, **settings)
    assert found.is_nested
    assert found.device == tensors[0].device
    assert found.size(1) == turned[0].size(1)
    assert found.size(2) == turned[0].size(2)
    if heads:
        found = found.transpose(1, 2)
        assert found.flatten(-2).size(2) == heads * 4  # needs the layout that torch's own result has
    found.values().sum().backward()

    leaves = [[part.clone().requires_grad_() for part in parts] for parts in given]
    expected = []
    for parts in zip(*leaves, strict=True):
        result = scaled_dot_product_attention(*(part.movedim(0, -2)[None] for part in parts), **settings)[0]
        expected.append(result.movedim(-2, 0))
    torch.cat(expected).sum().backward()
    torch.testing.assert_close(found.values().cpu(), torch.cat(expected))
    for tensor, parts in zip(tensors, leaves, strict=True):
        torch.testing.assert_close(tensor.grad.values().cpu(), torch.cat([part.grad for part in parts]))


def _compare_all(device: str) -> None:
    torch.manual_seed(0)
    for settings in SETTINGS:
        for heads in (2, 0):
            _compare(device, heads, settings)


@pytest.mark.usefixtures("active")
def test_on_a_cpu() -> None:
    _compare_all("cuda")


@on("cuda")
def test_on_virtual_cuda() -> None:
    _compare_all("cuda")


@on("xpu")
def test_on_virtual_xpu() -> None:
    _compare_all("xpu")


@on("mps:real", only_cpu="operators that a Mac lacks are refused")
def test_on_virtual_mps() -> None:
    torchdevice.activate()
    _compare_all("mps")


@pytest.mark.usefixtures("active")
def test_what_torch_refuses_is_refused() -> None:
    x = _jagged(_sequences(LENGTHS[0], 2, 4), "cuda").transpose(1, 2)
    with pytest.raises(ValueError, match="Masks are not yet supported"):
        scaled_dot_product_attention(x, x, x, attn_mask=torch.ones(1, device="cuda", dtype=torch.bool))
    with pytest.raises(ValueError, match="same dtype"):
        scaled_dot_product_attention(x, x, x.double())
    with pytest.raises(ValueError, match="Expected query, key, and value to be nested"):
        scaled_dot_product_attention(x, x, torch.ones(3, 2, 4, 4, device="cuda"))


def test_torch_gets_its_own_function_back() -> None:
    from torch.nested._internal import ops, sdpa

    torchdevice.activate(target="cpu")
    assert ops.jagged_scaled_dot_product_attention is not sdpa.jagged_scaled_dot_product_attention
    torchdevice.deactivate()
    assert ops.jagged_scaled_dot_product_attention is sdpa.jagged_scaled_dot_product_attention
