"""What compiles for a real device has no place on a virtual one, and is not found there."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from tests.virtual.harness import on


@on("cuda")
def test_triton_is_not_found() -> None:
    assert importlib.util.find_spec("triton") is None
    with pytest.raises(ModuleNotFoundError) as raised:
        import triton  # noqa: F401
    assert raised.value.name == "triton"
    from torch.utils._triton import has_triton_package

    assert not has_triton_package()
    assert torch.compile(lambda x: x + 1)(torch.ones(2, device="cuda")).tolist() == [2, 2]


@on("cuda")
def test_cuda_sources_are_refused_with_a_hint() -> None:
    from torch.utils.cpp_extension import CUDAExtension

    with pytest.raises(OSError, match=r"CUDA_HOME environment variable is not set.*\nHint: build"):
        CUDAExtension("kernels", ["kernels.cu"])
