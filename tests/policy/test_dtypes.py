"""dtypes that a target lacks: every one has a stand-in that the target has and that holds its values."""

from __future__ import annotations

import pytest
import torch

from torchdevice.policy.dtypes import dtype_on, lacks_dtypes, refused_dtype

ALL = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_what_stands_for_a_dtype_stays(dtype: torch.dtype) -> None:
    given = dtype_on("mps", dtype)
    assert dtype_on("mps", given) == given
    assert (given.is_floating_point, given.is_complex) == (dtype.is_floating_point, dtype.is_complex)
    for other in ("cpu", "cuda", "xpu"):
        assert dtype_on(other, dtype) == dtype
    narrow = dtype in (torch.float64, torch.complex128) or str(dtype).startswith("torch.float8_")
    assert (given != dtype) == narrow


@pytest.mark.parametrize("dtype", [each for each in ALL if str(each).startswith("torch.float8_")], ids=str)
def test_eight_bits_fit_into_what_stands_for_them(dtype: torch.dtype) -> None:
    every = torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32)
    narrowed = every.to(dtype_on("mps", dtype)).to(torch.float32)
    held = every.abs() <= torch.finfo(torch.float16).max
    # float8_e8m0fnu has powers of two only, beyond what float16 reaches on both sides
    small = every.abs() < torch.finfo(torch.float16).smallest_normal * 2**-10
    assert torch.equal(narrowed[held & ~small], every[held & ~small])


def test_the_words_of_torchs_refusals_are_known() -> None:
    assert refused_dtype("Double") is torch.float64
    assert refused_dtype("ComplexDouble") is torch.complex128
    assert refused_dtype("Float8_e4m3fn") is torch.float8_e4m3fn
    assert refused_dtype("Float") is None
    assert refused_dtype("Banana") is None
    assert [kind for kind in ("cpu", "cuda", "mps", "xpu") if lacks_dtypes(kind)] == ["mps"]
