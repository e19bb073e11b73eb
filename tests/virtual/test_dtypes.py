"""Dtypes that the kernels of CUDA take and the CPU's refuse, and the other way round."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import pytest
import torch

from tests.virtual.harness import on

ONLY_ON_A_GPU = {  # these take layouts or arguments of a real GPU's kernels
    "torch.ops.aten._flash_attention_forward",
    "torch.ops.aten._efficient_attention_forward",
    "nn.functional.batch_norm",
}
REFUSED_BY_CUDA_FOR_ANOTHER_REASON = {
    "histogram": "CUDA has no kernel for it",
    "histogramdd": "CUDA has no kernel for it",
    "norm": "complex32: only some norms",
    "scatter_reduce": "bool: only some reductions",
    "torch._scaled_mm": "only with the layouts of a GPU's kernel",
    "torch._scaled_mm_v2": "only with the layouts of a GPU's kernel",
}
WIDER = {torch.complex32: torch.complex64, torch.float16: torch.float32, torch.bfloat16: torch.float32}
if hasattr(torch, "bcomplex32"):  # since 2.14
    WIDER[torch.bcomplex32] = torch.complex64


with_database = pytest.mark.skipif(
    importlib.util.find_spec("expecttest") is None, reason="torch.testing needs expecttest"
)


def _database() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    return op_db


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.is_conj():  # the CPU cannot copy a lazy conjugate of bcomplex32
            return _wide(value.conj()).conj()
        return value.to(WIDER.get(value.dtype, value.dtype)).cpu()
    return type(value)(map(_wide, value)) if isinstance(value, (list, tuple)) else value


@with_database
@on("cuda")
def test_what_torchs_database_says_of_cuda_holds() -> None:
    seen = 0
    for op in _database():
        for dtype in sorted(op.dtypesIfCUDA - op.dtypes, key=str) if op.name not in ONLY_ON_A_GPU else ():
            sample = next(iter(op.sample_inputs("cuda", dtype)))
            result = op(sample.input, *sample.args, **sample.kwargs)
            assert result.is_cuda, (op.name, dtype)
            if WIDER.get(dtype) in op.dtypes and op.name != "nn.functional.rrelu":  # it draws
                want = op(_wide(sample.input), *_wide(sample.args), **sample.kwargs).to(result.dtype)
                if result.layout != torch.strided:
                    result, want = result.to_dense(), want.to_dense()
                have, want = _wide(result), _wide(want)
                finite = have.isfinite() & want.isfinite()  # the range of half precision is small
                have, want = have[finite], want[finite]
                assert (have - want).norm() <= 0.01 * want.norm(), (op.name, dtype)
            seen += 1
    assert seen > 40


@with_database
@on("cuda")
def test_what_torchs_database_says_that_cuda_refuses_is_refused() -> None:
    seen = 0
    for op in _database():
        # Without a GPU the database says that CUDA lacks bfloat16, where it asks for the capability of the GPU.
        refused = op.dtypes - op.dtypesIfCUDA
        refused -= {torch.bfloat16} if torch.float16 not in refused else set()
        for dtype in sorted(refused, key=str) if op.name not in REFUSED_BY_CUDA_FOR_ANOTHER_REASON else ():
            assert any(_is_refused(op, sample) for sample in op.sample_inputs("cuda", dtype)), (op.name, dtype)
            seen += 1
    assert seen > 60
    x = torch.ones(2, 2, device="cuda", dtype=torch.int64)
    with pytest.raises(NotImplementedError, match="\"addmm_cuda\" not implemented for 'Long'"):
        x @ x
    assert (x[:0] @ x).shape == (0, 2)  # CUDA launches no kernel for it
    assert torch.equal((x.float() @ x.float()).cpu(), torch.full((2, 2), 2.0))


def _is_refused(op: Any, sample: Any) -> bool:
    try:
        op(sample.input, *sample.args, **sample.kwargs)
    except NotImplementedError as error:
        return "not implemented for" in str(error)
    return False


def _normalized(device: str, dtype: torch.dtype, weights: torch.dtype, name: str) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(4, 6, 5).to(dtype).to(device).requires_grad_()
    size = 5 if name == "layer" else 6
    weight, bias = (torch.rand(size).to(weights).to(device).requires_grad_() for _ in range(2))
    if name == "layer":
        results = torch.native_layer_norm(x, [5], weight, bias, 1e-5)
    else:
        running = [torch.zeros(6, dtype=weights, device=device), torch.ones(6, dtype=weights, device=device)]
        results = (*torch.native_batch_norm(x, weight, bias, *running, True, 0.1, 1e-5), *running)
    grads = torch.autograd.grad((results[0] * torch.arange(5, device=device)).sum(), (x, weight, bias))
    return [*results, *grads]


@pytest.mark.parametrize("name", ["batch", "layer"])
@on("cuda")
def test_statistics_of_halves_are_float32_as_on_cuda(name: str) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        for weights in (dtype, torch.float32):
            have = _normalized("cuda", dtype, weights, name)
            want = _normalized("cpu", torch.float32, torch.float32, name)
            running = [weights, weights] if name == "batch" else []
            assert [each.dtype for each in have] == [
                *(dtype, torch.float32, torch.float32, *running),
                *(dtype, weights, weights),
            ]
            assert {each.device.type for each in have} == {"cuda"}
            for a, b in zip(have, want, strict=True):
                assert (a.cpu().float() - b).norm() <= 0.01 * b.norm() + 1e-3


@on("cuda")
def test_results_have_the_dtype_that_cuda_gives() -> None:
    z = torch.tensor([3 + 4j, 1j], device="cuda").to(torch.complex32)
    half = torch.rand(8, device="cuda", dtype=torch.float16)
    assert [z.angle().dtype, z.sum().dtype, torch.fft.fft(half).dtype, torch.fft.rfft(half).dtype] == [
        torch.float16,
        torch.complex32,
        torch.complex32,
        torch.complex32,
    ]
    assert torch.histc(torch.tensor([1, 2, 2], device="cuda"), bins=2).dtype == torch.int64
    out = torch.empty(0, dtype=torch.complex32, device="cuda")
    address = torch.sin(z, out=out)
    assert address is out
    torch.testing.assert_close(out.cpu().to(torch.complex64), z.cpu().to(torch.complex64).sin(), rtol=0.01, atol=0.01)
    assert z.to(torch.complex64).sum(dtype=torch.complex32).dtype == torch.complex32
    wide = torch.ones(2, dtype=torch.complex64, device="cuda")
    assert {(z / wide).dtype, z.sum(dtype=torch.complex64).dtype, z.pow(wide.real).dtype} == {torch.complex64}
    x = torch.randn(50, dtype=torch.float16, device="cuda").requires_grad_()
    y = torch.nn.functional.rrelu(x, training=True)  # it writes what the gradient reads
    y.sum().backward()
    torch.testing.assert_close(x.grad, (y / x).detach(), rtol=0.02, atol=0.02)
    again = z.clone()
    assert again.sin_() is again
    assert again.tolist() == out.tolist()


@on("cuda")
def test_transforms_of_halves_need_the_sizes_of_cufft() -> None:
    half = torch.rand(8, 6, device="cuda", dtype=torch.float16)
    assert torch.fft.fft(half, dim=0).shape == (8, 6)
    assert torch.fft.irfft(torch.fft.rfft(half, dim=0), dim=0).shape == (8, 6)
    refused = {
        "one size": lambda: torch.fft.fft(half),
        "one of two": lambda: torch.fft.fft2(half),
        "the requested size": lambda: torch.fft.irfft(torch.fft.rfft(half, dim=0), n=6, dim=0),
        "complex": lambda: torch.fft.fft(half.to(torch.complex32)),
    }
    for name, transform in refused.items():
        with pytest.raises(RuntimeError, match="powers of two when computing in half precision"):
            print(name, transform())
    assert torch.fft.fft(half.float()).shape == (8, 6)


def _four_bits(device: str, dtype: torch.dtype) -> None:
    x, weights = torch.rand(2, 64, dtype=dtype), torch.randint(16, (16, 64), dtype=torch.int32)
    scales_and_zeros = torch.rand(2, 16, 2, dtype=dtype)
    packed = torch._convert_weight_to_int4pack_for_cpu(weights, 2)
    want = torch._weight_int4pack_mm_for_cpu(x, packed, 32, scales_and_zeros)
    two_per_byte = (weights[:, ::2] << 4 | weights[:, 1::2]).to(torch.uint8)
    there = torch._convert_weight_to_int4pack(two_per_byte.to(device), 2)
    assert (there.shape, there.dtype) == ((2, 2, 32, 1), torch.int32)  # CUDA's
    have = torch._weight_int4pack_mm(x.to(device), there, 32, scales_and_zeros.to(device))
    assert have.device.type == device
    torch.testing.assert_close(have.cpu(), want)


@on("cuda")
def test_weights_of_four_bits_on_cuda() -> None:
    _four_bits("cuda", torch.bfloat16)
    with pytest.raises(RuntimeError, match="CUDA takes bfloat16"):
        _four_bits("cuda", torch.float32)
    with pytest.raises(RuntimeError, match="expect a multiple of 128 columns, not 64"):
        torch._convert_weight_to_int4pack(torch.zeros(16, 32, dtype=torch.uint8, device="cuda"), 8)


@on("mps", only_cpu="CUDA's kernel takes bfloat16 only")
def test_weights_of_four_bits_on_a_mac() -> None:
    for dtype in (torch.bfloat16, torch.float32):
        _four_bits("mps", dtype)
