"""Operators of extensions and programs with a kernel for the CPU only: they run on a target, whenever they came."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchdevice
from tests.virtual.harness import on
from torchdevice import fallback
from torchdevice.fallback.capability import extension_gaps


def define(namespace: str, key: str = "CPU") -> torch.library.Library:
    """An operator that makes a tensor of its own, as kernels in Python do."""
    library = torch.library.Library(namespace, "DEF")
    library.define("plus_one(Tensor x) -> Tensor")
    library.impl("plus_one", lambda x: x + torch.ones(x.shape[0]), key)
    return library


def ran(operator: str) -> int:
    return sum(figures.calls for record, figures in fallback.totals().items() if record.operator == operator)


def check_any_time() -> list[torch.library.Library]:
    kept = [define("before")]
    torchdevice.activate()
    device = torchdevice.status().target
    x = torch.arange(3.0)
    assert x.device.type == device
    kept.append(define("after"))
    late = torch.library.Library("late", "DEF")
    late.define("plus_one(Tensor x) -> Tensor")
    operator = torch.ops.late.plus_one  # looked up before there is a kernel
    late.impl("plus_one", lambda x: x + torch.ones(x.shape[0]), "CPU")
    for each in (torch.ops.before.plus_one, torch.ops.after.plus_one.default, operator):
        assert torch.equal(each(x), x + 1)
        assert each(x).device.type == device
    assert [ran(f"{name}::plus_one") for name in ("before", "after", "late")] == [2, 2, 2]
    torchdevice.deactivate()
    assert not fallback.coverage.extensions.covered
    assert torch.library.Library.impl.__code__.co_filename == torch.library.__file__
    return [*kept, late]


@on("mps:real")
def test_any_time_on_mps() -> None:
    kept = check_any_time()
    with pytest.raises(NotImplementedError):
        kept and torch.ops.before.plus_one(torch.ones(1, device="mps"))


@on("cuda")
def test_any_time_on_cuda() -> None:
    check_any_time()


@on("mps:real")
def test_a_kernel_for_the_target_wins_whenever_it_comes() -> None:
    torchdevice.activate()
    library = define("both")
    x = torch.zeros(2)
    assert torch.equal(torch.ops.both.plus_one(x), x + 1)
    library.impl("plus_one", lambda x: x + 5, "MPS")
    assert torch.equal(torch.ops.both.plus_one(x), x + 5)
    assert ran("both::plus_one") == 1
    native = define("native", "MPS")
    native.impl("plus_one", lambda x: x + 7, "CPU")
    assert torch.ops.native.plus_one(x).device.type == "mps"
    assert ran("native::plus_one") == 0
    torchdevice.deactivate()
    assert torch.equal(torch.ops.both.plus_one(torch.zeros(2, device="mps")).cpu(), torch.full((2,), 5.0))


@on("mps:real")
def test_custom_operators_with_gradients_compiled_and_redefined() -> None:
    torchdevice.activate()

    def twice() -> Any:
        @torch.library.custom_op("mine::twice", mutates_args=(), device_types="cpu")
        def operator(x: torch.Tensor) -> torch.Tensor:
            return x * torch.full((1,), 2.0)

        operator.register_autograd(lambda context, gradient: gradient * 2)
        operator.register_fake(torch.empty_like)
        return operator

    for _ in range(2):  # as when a cell of a notebook is run again
        operator = twice()
        x = torch.arange(3.0, requires_grad=True)
        operator(x).sum().backward()
        assert torch.equal(x.grad, torch.full((3,), 2.0))
        assert x.grad.device.type == "mps"
    compiled = torch.compile(lambda x: operator(x) + 1, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))


@on("mps:real")
def test_arguments_are_written_and_several_results_come_back() -> None:
    library = torch.library.Library("shapes", "DEF")
    library.define("fill_(Tensor(a!) x, float value) -> ()")
    library.define("parts(Tensor[] xs, int n, str? mode=None) -> (Tensor, Tensor[])")
    library.impl("fill_", lambda x, value: x.fill_(value).add_(torch.zeros(1)) and None, "CPU")
    library.impl("parts", lambda xs, n, mode=None: (torch.cat(xs), list(torch.cat(xs).split(n))), "CPU")
    torchdevice.activate()
    x = torch.zeros(1)
    torch.ops.shapes.fill_(x, 3.0)
    assert x.item() == 3
    joined, parts = torch.ops.shapes.parts([torch.ones(2), torch.zeros(2)], 2, mode="any")
    assert {tensor.device.type for tensor in (joined, *parts)} == {"mps"}
    assert [part.tolist() for part in parts] == [[1, 1], [0, 0]]


@on("mps:real", env={"TORCHDEVICE_FALLBACK": "off"})
def test_without_fallbacks_the_error_says_so() -> None:
    library = define("refused")
    torchdevice.activate()
    with pytest.raises(torchdevice.FallbackRefused, match=r"refused::plus_one"):
        library.ns and torch.ops.refused.plus_one(torch.ones(1))


@on("")
def test_what_torch_has_for_the_cpu_alone_is_not_covered() -> None:
    assert [gap for target in ("mps", "cuda", "xpu") for gap in extension_gaps(target)] == []
