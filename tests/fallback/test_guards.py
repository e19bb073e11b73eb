"""Guards: native first, refusals lead elsewhere and are remembered, every other error is the caller's."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import torchdevice
import torchdevice.virtual
from tests.fallback.test_native import told_apart
from tests.torches import recorded_on_pinned_torch
from tests.virtual.harness import on
from tools.mac_reports import checks
from torchdevice import fallback
from torchdevice._torch.core import torch_release
from torchdevice.fallback import kernels
from torchdevice.fallback.kernels import EXEMPT, GUARDED, GUARDED_IN_CPP, make_guard, refusal_of
from torchdevice.virtual import supported


@recorded_on_pinned_torch
def test_the_rows_are_torchs_own_list() -> None:
    listed = {name.removesuffix("_").removesuffix(".out") for name in supported.denied_dtypes()}
    listed = {name.removesuffix(".grad_input") for name in listed}
    known = {*GUARDED["mps"], *GUARDED_IN_CPP["mps"], *EXEMPT}
    assert listed <= known, listed - known


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotImplementedError("The operator 'aten::x' is not currently implemented for the MPS device. If"), "dtype"),
        (NotImplementedError("\"softplus_mps\" not implemented for 'Byte'"), "dtype"),
        (
            TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64."),
            "dtype",
        ),
        (RuntimeError("Adaptive pool MPS: input sizes must be divisible by output sizes."), "size"),
        (RuntimeError("Adaptive pool MPS: Input height and width must both be greater than, or equal to"), "size"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"), None),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), None),
        (torch.OutOfMemoryError("MPS: not supported"), None),
        (ValueError("not implemented for 'Byte'"), None),
        (IndexError("Dimension out of range"), None),
    ],
)
def test_what_counts_as_a_refusal(error: Exception, kind: str | None) -> None:
    assert refusal_of(error) == kind


REPORTS = Path(__file__).parents[1] / "mac_reports" / "reports.json"


def test_refusals_that_owners_of_macs_reported_are_recognized() -> None:
    reported = {row["error"] for row in json.loads(REPORTS.read_text(encoding="utf-8"))}
    refusals = [
        text for text in reported if re.search(r"not (currently )?(supported|implemented) \w+ the MPS device", text)
    ]
    assert any("Output channels > 65536" in text for text in refusals)
    assert [text for text in refusals if refusal_of(NotImplementedError(text)) is None] == []


def test_refusals_in_the_sources_of_the_kernels_are_recognized() -> None:
    rows = [row for row in checks.checks() if row.operator not in checks.NOT_SIMULATED]
    guarded = set(kernels.guarded_rows("mps", in_cpp=True))
    messages = {
        checks.example(row.message) for row in rows if checks.KERNEL_OF.get(row.operator, row.operator) in guarded
    }
    assert len(messages) > 15
    assert {text for text in messages if refusal_of(RuntimeError(text)) is None} == set()


def test_native_is_asked_once_for_what_it_refuses() -> None:
    asked: list[Any] = []

    def native(keys: Any, tensor: torch.Tensor, size: int) -> str:
        asked.append((tensor.dtype, size))
        if tensor.dtype is torch.uint8:
            raise NotImplementedError("\"x\" not implemented for 'Byte'")
        if size == 3:
            raise RuntimeError("Adaptive pool MPS: input sizes must be divisible by output sizes.")
        if size == 9:
            raise RuntimeError("shapes cannot be multiplied")
        return "native"

    guard = make_guard(SimpleNamespace(call_boxed=native), lambda reason, args, kwargs: "elsewhere")
    byte, real = torch.zeros(2, dtype=torch.uint8), torch.zeros(2)
    assert [guard(None, real, 2), guard(None, byte, 2), guard(None, byte, 4)] == ["native", "elsewhere", "elsewhere"]
    assert [guard(None, real, 3), guard(None, real, 3), guard(None, real, 2)] == ["elsewhere", "elsewhere", "native"]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            guard(None, real, 9)
    assert [size for dtype, size in asked if dtype is torch.uint8] == [2]
    assert [size for dtype, size in asked if dtype is torch.float32] == [2, 3, 2, 9, 9]


@on("mps:real")
def test_average_pooling_to_sizes_that_do_not_divide() -> None:
    """A Mac refuses them; the CPU is asked once its refusal is known."""
    x = torch.randn(1, 2, 5, 7)
    with pytest.raises(RuntimeError, match="Adaptive pool MPS: input sizes must be divisible by output sizes"):
        nn.functional.adaptive_avg_pool2d(x.to("mps"), (2, 3))
    torchdevice.activate(policy="portable")
    for size in ((2, 3), (1, 7), (7, 14)):
        there, here = x.clone().to("mps").requires_grad_(), x.clone().requires_grad_()
        for value in (there, here):
            nn.functional.adaptive_avg_pool2d(value, size).square().sum().backward()
        torch.testing.assert_close(there.grad.to("cpu"), here.grad)
    assert {record.operator for record in fallback.totals()} == {
        "aten::_adaptive_avg_pool2d",
        "aten::_adaptive_avg_pool2d_backward",
    }
    assert sum(figures.calls for figures in fallback.totals().values()) == 4  # 5×7 → 1×7 divides


@on("mps:real")
def test_a_kernel_that_is_wrong_is_not_asked() -> None:
    """Metal's maximum of such windows is another's: torch gives it without a word."""
    torchdevice.activate(policy="portable")
    x = torch.arange(25.0).reshape(1, 1, 5, 5)
    there = x.clone().to("mps").requires_grad_()
    pooled = nn.functional.adaptive_max_pool2d(there, (3, 3))
    pooled.sum().backward()
    assert pooled.flatten().tolist() == [6.0, 8.0, 9.0, 16.0, 18.0, 19.0, 21.0, 23.0, 24.0]
    fallen = {record.operator: record.reason for record in fallback.totals()}
    if torch_release() < (2, 14):
        assert set(fallen) == {"aten::adaptive_max_pool2d", "aten::adaptive_max_pool2d_backward"}
        assert set(fallen.values()) == {"the kernel of this torch version is wrong for sizes that do not divide evenly"}
    fallback.clear()
    nn.functional.adaptive_max_pool2d(there, (5, 1))
    assert fallback.totals() == {}


@on("mps:real")
def test_refused_dtypes_run_elsewhere_and_others_natively() -> None:
    torchdevice.activate(policy="portable")
    x, weight = torch.arange(16).reshape(1, 1, 4, 4), torch.ones(1, 1, 2, 2, dtype=torch.long)
    for _ in range(2):
        there = nn.functional.conv2d(x.to("mps"), weight.to("mps"))
        assert there.device.type == "mps"
        assert torch.equal(there.to("cpu"), nn.functional.conv2d(x, weight))
    assert torchdevice.virtual.denied() == {"aten::_convolution": 1}
    fallback.clear()
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        nn.functional.conv2d(x.to(dtype).to("mps"), weight.to(dtype).to("mps"))
    assert fallback.totals() == {}
    powers = torch.tensor([2.0, 3.0], device="mps").float_power(2)  # torch computes it in float64
    assert (powers.tolist(), powers.device.type) == ([4.0, 9.0], "mps")


@on("mps:real")
def test_a_composite_keeps_its_gradient_and_shape_errors_stay() -> None:
    torchdevice.activate(policy="portable")
    x = torch.randn(1, 1, 3, 3, device="mps")
    with pytest.raises(RuntimeError, match="Kernel size can't be greater than actual input size"):
        nn.functional.conv2d(x, torch.ones(1, 1, 5, 5, device="mps"))
    wave = torch.randn(1, 1, 8, device="mps", dtype=torch.float16, requires_grad=True)
    nn.functional.conv1d(wave, torch.ones(1, 1, 3, device="mps", dtype=torch.float16)).sum().backward()
    assert wave.grad.device.type == "mps"
    assert wave.grad.flatten().tolist() == [1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 2.0, 1.0]


def _half_of_floats(x: torch.Tensor) -> torch.Tensor:
    if not x.is_floating_point():
        raise NotImplementedError("\"exp2\" not implemented for 'Int'")
    return x / 2


@on("mps:real")
def test_the_user_guards_more() -> None:
    torchdevice.activate(policy="portable")
    library = torch.library.Library("aten", "IMPL")
    library.impl("exp2", _half_of_floats, "MPS")
    real, whole = torch.ones(2, device="mps"), torch.ones(2, dtype=torch.int32, device="mps")
    with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
        torch.exp2(whole)
    fallback.guard("aten::exp2")
    for _ in range(2):
        assert (torch.exp2(whole).tolist(), torch.exp2(real).tolist()) == ([2.0, 2.0], [0.5, 0.5])
    torchdevice.deactivate()
    with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
        torch.exp2(whole)


# A call of each operator without a guard.
UNGUARDED: dict[str, Callable[[torch.Tensor], Any]] = {
    "relu": torch.relu,
    "relu_": lambda x: torch.relu_(x.clone()),
    "silu": nn.functional.silu,
    "max_pool2d": lambda x: nn.functional.max_pool2d(x[None, None], 2),
    "max_pool3d": lambda x: nn.functional.max_pool3d(x[None, None, None].expand(1, 1, 2, 2, 2), 2),
    "batch_norm": lambda x: nn.functional.batch_norm(x, None, None, training=True),
    "native_batch_norm": lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[0],
}


@recorded_on_pinned_torch
def test_the_cpu_refuses_what_has_no_guard() -> None:
    assert UNGUARDED.keys() == EXEMPT
    denied = {name: dtypes for name, dtypes in supported.denied_dtypes().items() if name in EXEMPT}
    assert denied
    for name, dtypes in denied.items():
        for dtype in dtypes:
            with pytest.raises((RuntimeError, NotImplementedError)):
                UNGUARDED[name](torch.ones(2, 2).to(getattr(torch, dtype)))


@told_apart
@on("mps:real")
def test_integer_products_run_on_the_cpu() -> None:
    torchdevice.activate(policy="portable")
    dtypes = ("float32", "float16", "int64", "int32", "int8", "uint8")
    for _ in range(2):
        for dtype in dtypes:
            x = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
            there = nn.functional.linear(x.to("mps"), x.to("mps"))
            assert there.device.type == "mps"
            assert torch.equal(there.to("cpu"), nn.functional.linear(x, x))
    assert {record.dtypes[0] for record in fallback.totals()} == {"int64", "int32", "int8", "uint8"}
    torchdevice.deactivate()
    whole = torch.ones(2, 2, dtype=torch.int64, device="mps")
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        nn.functional.linear(whole, whole)


@on("mps:real")
def test_errors_of_the_caller_are_raised_by_a_guard_in_cpp() -> None:
    torchdevice.activate(policy="portable")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            nn.functional.linear(torch.ones(2, 3, device="mps"), torch.ones(2, 2, device="mps"))
    assert fallback.totals() == {}


@told_apart
@on("mps:real")
def test_a_guard_in_cpp_does_not_call_python_for_what_the_device_has() -> None:
    torchdevice.activate(policy="portable")
    entered: list[str] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and Path(frame.f_code.co_filename).parent == Path(kernels.__file__).parent:
            entered.append(frame.f_code.co_name)

    x, whole = torch.ones(2, 2, device="mps"), torch.ones(2, 2, dtype=torch.int64, device="mps")
    nn.functional.linear(whole, whole)  # a refusal of other dtypes changes nothing
    sys.setprofile(watch)
    try:
        nn.functional.linear(x, x)
        nn.functional.conv2d(x[None, None], x[None, None])
        nn.functional.avg_pool2d(x[None], 2)
        nn.functional.softplus(x)
        native = list(entered)
        nn.functional.linear(whole, whole)
    finally:
        sys.setprofile(None)
    assert native == []
    assert "guard" in entered  # the refusal was passed to Python


@told_apart
@on("mps:real")
def test_guards_in_cpp_pass_arguments_on_without_a_stack() -> None:
    torchdevice.activate(policy="portable")
    seen = []
    for name in GUARDED_IN_CPP["mps"]:
        if "SymInt" in str(getattr(torch.ops.aten, name).default._schema):
            continue  # the dump does not show such kernels
        lines = torch._C._dispatch_dump(f"aten::{name}").splitlines()
        seen.append(next(line for line in lines if line.startswith("MPS:")))
    assert seen
    # Without this header the library does not know torch's version, and passes arguments on a stack.
    header = Path(torch.__file__).parent / "include/torch/headeronly/version.h"
    form = "unboxed" if header.exists() else "[ boxed ]"
    assert all("the device first" in line and form in line for line in seen), seen


@on("mps:real")
def test_guarded_composites_keep_their_gradients_without_a_warning() -> None:
    """A kernel under the backend's key must not take the composite away from the autograd key."""
    warnings.simplefilter("error")
    torchdevice.activate(policy="portable")
    torch.manual_seed(0)
    start, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    found = []
    for device in ("cpu", "mps"):
        x = start.clone().to(device).requires_grad_()
        nn.functional.nll_loss(x.log_softmax(1), target.to(device)).backward()
        nn.functional.max_pool1d(x.unsqueeze(0), 2).sum().backward()
        nn.functional.batch_norm(x, None, None, training=True).square().sum().backward()
        nn.functional.linear(x, torch.ones(2, 3, device=device)).sum().backward()
        found.append(x.grad.to("cpu"))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
