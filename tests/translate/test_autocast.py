"""autocast for a program's accelerator and for its CPU stay apart where both are one device."""

from __future__ import annotations

import pytest
import torch

import torchdevice
from tests.virtual.harness import on


def dtypes_inside() -> list[str]:
    """As on CUDA: each line asks for the dtype of a product on the accelerator."""
    x = torch.ones(4, 4, device="cuda")
    found: list[torch.dtype] = []
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found.append((x @ x).dtype)
        with torch.autocast("cpu", enabled=False):
            found.append((x @ x).dtype)
        with torch.autocast("cpu", torch.float16, False), torch.autocast("cpu", dtype=torch.float16):
            found.append((x @ x).dtype)
        with torch.autocast("cuda", enabled=False):
            found.append((x @ x).dtype)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found.append((x @ x).dtype)
        found.append((x @ x).dtype)
    found.append((x @ x).dtype)
    return [str(dtype).removeprefix("torch.") for dtype in found]


AS_ON_CUDA = ["bfloat16", "bfloat16", "bfloat16", "float32", "float32", "bfloat16", "float32"]


def test_on_a_cpu(active: None) -> None:
    assert dtypes_inside() == AS_ON_CUDA
    x = torch.ones(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16
        with torch.autocast("cpu", enabled=False):
            assert (x @ x).dtype is torch.float32
    with pytest.raises(ZeroDivisionError), torch.autocast("cuda", dtype=torch.bfloat16):
        1 / 0  # noqa: B018 - it must raise
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype is torch.bfloat16


def _under_both_policies() -> None:
    for policy in ("accelerate", "portable"):
        with torchdevice.redirect(policy=policy):
            assert dtypes_inside() == AS_ON_CUDA, policy


@on("mps")
def test_on_mps() -> None:
    _under_both_policies()


@on("cuda")
def test_on_cuda() -> None:
    _under_both_policies()
