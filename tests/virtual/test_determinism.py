"""torch.use_deterministic_algorithms: operators without a deterministic kernel for CUDA say so on a virtual device."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from tests.virtual.harness import on


def _image(*size: int) -> torch.Tensor:
    return torch.rand(1, 2, *size, device="cuda", requires_grad=True)


def _lost(log: torch.Tensor) -> torch.Tensor:
    return functional.ctc_loss(log, torch.ones(2, 3, dtype=torch.long, device="cuda"), [8, 8], [3, 3])


# What fails in its gradient, by the name of the kernel. (`interpolate` has another way for most.)
BACKWARD: dict[str, Callable[[], torch.Tensor]] = {
    "adaptive_avg_pool2d_backward_cuda": lambda: functional.adaptive_avg_pool2d(_image(5, 5), 2),
    "adaptive_avg_pool3d_backward_cuda": lambda: functional.adaptive_avg_pool3d(_image(5, 5, 5), 2),
    "adaptive_max_pool2d_backward_cuda": lambda: functional.adaptive_max_pool2d(_image(5, 5), 2),
    "avg_pool3d_backward_cuda": lambda: functional.avg_pool3d(_image(4, 4, 4), 2),
    "ctc_loss_backward_gpu": lambda: _lost(torch.rand(8, 2, 4, device="cuda", requires_grad=True).log_softmax(2)),
    "embedding_bag_backward_cuda_max": lambda: functional.embedding_bag(
        torch.tensor([[0, 1]], device="cuda"), torch.rand(3, 2, device="cuda", requires_grad=True), mode="max"
    ),
    "fractional_max_pool2d_backward_cuda": lambda: functional.fractional_max_pool2d(_image(6, 6), 2, output_size=3),
    "grid_sampler_2d_backward_cuda": lambda: functional.grid_sample(
        _image(4, 4), torch.rand(1, 3, 3, 2, device="cuda"), align_corners=False
    ),
    "reflection_pad1d_backward_out_cuda": lambda: functional.pad(_image(4), (1, 1), mode="reflect"),
    "upsample_bicubic2d_backward_out_cuda": lambda: torch.ops.aten.upsample_bicubic2d(_image(4, 4), [8, 8], False),
    "upsample_bilinear2d_backward_out_cuda": lambda: torch.ops.aten.upsample_bilinear2d(_image(4, 4), [8, 8], False),
    "upsample_linear1d_backward_out_cuda": lambda: torch.ops.aten.upsample_linear1d(_image(4), [8], False),
    "upsample_trilinear3d_backward_out_cuda": lambda: torch.ops.aten.upsample_trilinear3d(
        _image(4, 4, 4), [8, 8, 8], False
    ),
}
FORWARD: dict[str, Callable[[], object]] = {
    "_bincount_cuda": lambda: torch.bincount(
        torch.ones(2, dtype=torch.long, device="cuda"), torch.ones(2, device="cuda")
    ),
    "_histc_cuda": lambda: torch.histc(torch.rand(3, device="cuda")),
    "kthvalue CUDA": lambda: torch.rand(3, device="cuda").kthvalue(1),
    "median CUDA with indices output": lambda: torch.rand(3, device="cuda").median(0),
    "nll_loss2d_forward_out_cuda_template": lambda: functional.nll_loss(
        torch.rand(1, 2, 3, 3, device="cuda"), torch.zeros(1, 3, 3, dtype=torch.long, device="cuda")
    ),
    "put_": lambda: torch.zeros(3, device="cuda").put_(
        torch.tensor([0], device="cuda"), torch.ones(1, device="cuda"), accumulate=True
    ),
    "scatter_reduce_cuda_kernel": lambda: torch.ones(3, device="cuda").scatter_(
        0, torch.tensor([0], device="cuda"), torch.ones(1, device="cuda"), reduce="multiply"
    ),
    "scatter_reduce_cuda_prod_": lambda: torch.ones(3, device="cuda").scatter_reduce_(
        0, torch.tensor([0], device="cuda"), torch.ones(1, device="cuda"), "prod"
    ),
}
DETERMINISTIC: tuple[Callable[[], object], ...] = (
    lambda: torch.bincount(torch.ones(2, dtype=torch.long, device="cuda")),
    lambda: torch.rand(3, device="cuda").median(),
    lambda: functional.nll_loss(torch.rand(2, 3, device="cuda"), torch.zeros(2, dtype=torch.long, device="cuda")),
    lambda: functional.max_pool2d(_image(4, 4), 2).sum().backward(),
    lambda: torch.histc(torch.rand(3)),
)


@on("cuda", only_cpu="the accelerator's kernels say it")
def test_each_of_them_says_so_and_only_then() -> None:
    calls = {**FORWARD, **{name: lambda make=make: make().sum().backward() for name, make in BACKWARD.items()}}
    for name, call in calls.items():
        call()
        torch.use_deterministic_algorithms(True)
        with pytest.raises(RuntimeError, match=f"^{name} does not have a deterministic implementation"):
            call()
        torch.use_deterministic_algorithms(True, warn_only=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert any(name in str(each.message) for each in caught), name
        torch.use_deterministic_algorithms(False)
    torch.use_deterministic_algorithms(True)
    for fine in DETERMINISTIC:
        fine()


@on("xpu", only_cpu="the accelerator's kernels say it")
def test_it_is_cudas_list() -> None:
    torch.use_deterministic_algorithms(True)
    torch.rand(3, device="xpu").kthvalue(1)
