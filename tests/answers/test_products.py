"""Products with a dtype of their own for the result, which torch has for CUDA alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import torchdevice
from torchdevice.answers.products import WIDENED

A = torch.rand(2, 3, 3)
PRODUCTS: dict[str, Callable[..., torch.Tensor]] = {
    "mm": lambda a, **options: torch.mm(a[0], a[1], **options),
    "bmm": lambda a, **options: torch.bmm(a, a, **options),
    "addmm": lambda a, **options: torch.addmm(a[0], a[0], a[1], beta=2, alpha=3, **options),
    "baddbmm": lambda a, **options: torch.baddbmm(a, a, a, beta=2, alpha=3, **options),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_on_a_cpu_they_give_what_the_wider_dtype_gives_and_plain_torch_refuses_again(name: str) -> None:
    half, product = A.half(), PRODUCTS[name]
    with torchdevice.redirect(target="cpu"):
        found = product(half.to("cuda"), out_dtype=torch.float32)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, product(half.float()))
    with pytest.raises(NotImplementedError):
        product(half, out_dtype=torch.float32)


def test_every_product_is_tried() -> None:
    assert {f"aten::{name}.dtype" for name in PRODUCTS} == set(WIDENED)
