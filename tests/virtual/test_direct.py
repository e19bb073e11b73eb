"""Kernels with a signature: which operators have one, and what they do with arguments that are not simple."""

from __future__ import annotations

import threading

import pytest
import torch

from tests.virtual.harness import on

# By what programs spend their time on: a linear layer, an activation, norms, a loss, optimizers.
HOT = (
    "add.Tensor",
    "add_.Tensor",
    "mul.Tensor",
    "mm",
    "addmm",
    "bmm",
    "gelu",
    "gelu_backward",
    "relu",
    "threshold_backward",
    "native_layer_norm",
    "native_layer_norm_backward",
    "native_batch_norm",
    "nll_loss_forward",
    "nll_loss_backward",
    "embedding_dense_backward",
    "max_pool2d_with_indices",
    "_fused_adamw_",
    "cat",
    "_convolution",
    "convolution_backward",
    "div.Tensor",
    "pow.Tensor_Scalar",
    "sigmoid",
    "sum.dim_IntList",
    "tanh",
)


@on("xpu")
def test_hot_operators_have_a_kernel_with_a_signature() -> None:
    boxed = [name for name in HOT if ":: (none)" in _registration(f"aten::{name}")]
    assert boxed == []


@on("xpu")
def test_operators_with_views_or_out_arguments_have_none() -> None:
    assert all(":: (none)" in _registration(f"aten::{name}") for name in ("add.out", "nonzero", "resize_"))


@on("cuda")
def test_a_dtype_that_the_cpu_lacks_is_converted_wherever_it_is_given() -> None:
    plain = torch.tensor([1.5, 2.0, -0.5], dtype=torch.complex64)
    wide, narrow = plain.to("cuda"), plain.to("cuda", torch.complex32)
    asked = wide.sum(dtype=torch.complex32)
    assert (asked.dtype, asked.cpu().to(torch.complex64)) == (torch.complex32, plain.sum())
    for found, expected in (
        (torch.div(wide, narrow), plain / plain),
        (torch.div(narrow, wide), plain / plain),
        (torch.pow(narrow, 2), plain**2),
        (torch.lerp(narrow, narrow, 0.5), plain),
    ):
        torch.testing.assert_close(found.cpu().to(torch.complex64), expected, rtol=1e-3, atol=1e-3)


def _registration(name: str) -> str:
    """What the dispatcher says of the kernel; a boxed one has no schema of its own."""
    return next(line for line in torch._C._dispatch_dump(name).splitlines() if line.startswith("XPU:"))


@on("cuda:2")
def test_arguments_that_are_not_simple_give_what_the_cpu_gives_on_cuda() -> None:
    _check_arguments("cuda")


@on("xpu")
def test_arguments_that_are_not_simple_give_what_the_cpu_gives_on_xpu() -> None:
    _check_arguments("xpu")


@on("mps")
def test_arguments_that_are_not_simple_give_what_the_cpu_gives_on_mps() -> None:
    _check_arguments("mps")


def _check_arguments(device: str) -> None:
    torch.manual_seed(0)
    base = torch.randn(6, 6)
    there = base.to(device)
    pairs = {
        "the same tensor twice": lambda x: x * x,
        "two views of one storage": lambda x: x[:3] + x[3:],
        "six views of one storage": lambda x: torch.addcmul(x[0], x[1], x[2]) + torch.where(x[3] > 0, x[4], x[5]),
        "a transposed view": lambda x: x.t() @ x,
        "a view beside its base": lambda x: torch.addmm(x, x.t(), x),
        "a number": lambda x: x * 2.5 + 1,
        "a tensor of the host without dimensions": lambda x: x * torch.tensor(3.0),
        "an imaginary part, which is negated lazily": lambda x: torch.complex(x, x).conj().imag + x,
        "nothing": lambda x: x[:0] + x[:0],
        "an expanded tensor": lambda x: x[:1].expand(6, 6) + x,
    }
    for name, function in pairs.items():
        expected, got = function(base), function(there)
        assert got.device.type == device, name
        torch.testing.assert_close(got.cpu(), expected, msg=name)


@on("cuda:2")
def test_writing_through_views_and_to_oneself_on_cuda() -> None:
    _check_writing("cuda")


@on("xpu")
def test_writing_through_views_and_to_oneself_on_xpu() -> None:
    _check_writing("xpu")


@on("mps")
def test_writing_through_views_and_to_oneself_on_mps() -> None:
    _check_writing("mps")


def _check_writing(device: str) -> None:
    expected, got = torch.arange(12.0).view(3, 4), torch.arange(12.0, device=device).view(3, 4)
    for x in (expected, got):
        assert x.add_(x) is x
        x[0].mul_(x[1])
        x.t()[1].sub_(x.t()[0])
        before = x._version
        x.relu_()
        assert x._version == before + 1
    assert got.tolist() == expected.tolist()


@on("cuda:2")
def test_lists_with_repeated_tensors_and_views_on_cuda() -> None:
    _check_lists("cuda")


@on("xpu")
def test_lists_with_repeated_tensors_and_views_on_xpu() -> None:
    _check_lists("xpu")


def _check_lists(device: str) -> None:
    results = []
    for kind in ("cpu", device):
        base = torch.arange(24.0, device=kind).view(4, 6)
        other = [torch.full((6,), float(n), device=kind) for n in range(3)]
        torch._foreach_add_([base[0], base[1]], [base[2], base[2]])
        multiplied = torch._foreach_mul([other[0], other[1], other[1], other[2]], 3.0)
        squared = torch._foreach_mul(other, other)
        norms = torch._foreach_norm([base, *other])
        torch._foreach_add_(other, 1.0)
        results.append([x.tolist() for x in (base, *other, *multiplied, *squared, *norms)])
    assert results[0] == results[1]


@on("cuda:2")
def test_devices_that_do_not_agree_are_refused_in_the_words_of_cuda() -> None:
    one, two = torch.ones(3, device="cuda:0"), torch.ones(3, device="cuda:1")
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*cuda:1"):
        one + two
    with pytest.raises(RuntimeError, match=r"Expected all tensors to be on the same device.*cpu"):
        one + torch.ones(3)
    with pytest.raises(RuntimeError):
        torch.tensor(1.0).add_(one)
    assert (two + two).device.index == 1


@on("cuda")
def test_memory_that_is_used_again_has_the_new_dtype_geometry_and_device_on_cuda() -> None:
    _check_memory_used_again("cuda")


@on("mps")
def test_memory_that_is_used_again_has_the_new_dtype_geometry_and_device_on_mps() -> None:
    _check_memory_used_again("mps")


def _check_memory_used_again(device: str) -> None:
    for dtype, shape in ((torch.float32, (3, 4)), (torch.int64, (24,)), (torch.bool, ()), (torch.float16, (2, 1, 2))):
        for _ in range(3):
            x = torch.ones(shape, dtype=dtype, device=device)
            y = x.logical_not()
            assert (y.dtype, tuple(y.shape), y.sum().item()) == (torch.bool, shape, 0)
            del x, y


@on("xpu")
def test_threads_that_use_the_same_tensors() -> None:
    weight, wrong = torch.eye(8, device="xpu"), []

    def work(number: int) -> None:
        x = torch.full((8, 8), float(number), device="xpu")
        for _ in range(300):
            y = torch.addmm(weight, x, weight) - weight
            torch._foreach_mul([weight, x], 2.0)
            if not torch.equal(y.cpu(), x.cpu()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@on("xpu")
def test_inference_mode_and_back() -> None:
    x = torch.ones(4, device="xpu", requires_grad=True)
    with torch.inference_mode():
        assert (x * 3).sum().item() == 12
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0] * 4


@on("cuda")
def test_memory_that_several_tensors_share_until_one_writes() -> None:
    one = torch.arange(4.0, device="cuda")
    two = one._lazy_clone()
    two.add_(1)
    assert (one.tolist(), two.tolist()) == ([0, 1, 2, 3], [1, 2, 3, 4])
