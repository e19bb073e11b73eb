"""Operators of extensions and programs with a kernel for the CPU only: they run on a target, whenever they came."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import torchdevice
from tests.virtual.harness import on
from torchdevice import fallback
from torchdevice.fallback.gaps import extension_gaps


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


@on("mps:real")
def test_an_operator_that_is_defined_anew() -> None:
    torchdevice.activate()
    x = torch.zeros(2)

    @torch.library.custom_op("again::bump", mutates_args=(), device_types="cpu")
    def bump(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert torch.equal(bump(x), x + 1)

    @torch.library.custom_op("again::bump", mutates_args=("x",), device_types="cpu")
    def bump_in_place(x: torch.Tensor, by: int) -> None:
        x.add_(by)

    bump_in_place(x, 3)
    assert x.tolist() == [3, 3]


@on("mps:real")
def test_gradients_of_what_a_kernel_does() -> None:
    """torch records what an operator without a formula does, if it is Python; arguments may share a storage."""
    library = torch.library.Library("att", "DEF")
    library.define("score(Tensor q, Tensor k) -> Tensor")
    library.impl("score", lambda q, k: q @ k.transpose(-1, -2), "CPU")
    gradients = []
    for device in ("cpu", "mps"):
        with torchdevice.redirect(policy="portable"):
            weight = torch.arange(8.0, device=device).view(4, 2).requires_grad_()
            q, k = (torch.ones(3, 2, device=device) @ weight.t()).chunk(2, -1)
            torch.ops.att.score(q, k).sum().backward()
            gradients.append(weight.grad.cpu())
    assert library.ns
    assert torch.equal(*gradients)


@on("mps:real")
def test_other_registrations_for_the_same_operator() -> None:
    torchdevice.activate()
    x = torch.zeros(1)
    library = define("shared")
    library.impl("plus_one", lambda x: x + 100, "CompositeExplicitAutograd")
    assert torch.ops.shared.plus_one(x).item() == 100
    library = define("tried")
    with pytest.raises(TypeError):
        library.impl("plus_one", None, "MPS")
    assert torch.ops.tried.plus_one(x).item() == 1
    scope = torch.library.Library("tried", "IMPL")
    scope.impl("plus_one", lambda x: x + 5, "MPS")
    assert torch.ops.tried.plus_one(x).item() == 5
    scope._destroy()
    assert torch.ops.tried.plus_one(x).item() == 1
    for wrong in (torch.ops.tried.plus_one, None):
        with pytest.raises(RuntimeError, match="should be passed either a name or an OpOverload object"):
            library.impl(wrong, lambda x: x, "CPU")
    library.define("plus_two(Tensor x) -> Tensor")
    library.impl(torch.ops.tried.plus_two.default, lambda x: x + 2, "CPU")
    assert torch.ops.tried.plus_two(x).item() == 2


@on("mps:real")
def test_threads_that_register() -> None:
    torchdevice.activate()
    x = torch.zeros(1)

    def work(number: int) -> list[torch.library.Library]:
        libraries = [define(f"thread{number}_{turn}") for turn in range(20)]
        for library in libraries:
            assert getattr(torch.ops, library.ns).plus_one(x).item() == 1
        return libraries

    with ThreadPoolExecutor(4) as pool:
        assert len([*pool.map(work, range(4))]) == 4


@on("mps:real", env={"TORCHDEVICE_FALLBACK": "off"})
def test_without_fallbacks_the_error_says_so() -> None:
    library = define("refused")
    torchdevice.activate()
    with pytest.raises(torchdevice.FallbackRefused, match=r"refused::plus_one"):
        library.ns and torch.ops.refused.plus_one(torch.ones(1))


@on("")
def test_what_torch_has_for_the_cpu_alone_is_not_covered() -> None:
    assert [gap for target in ("mps", "cuda", "xpu") for gap in extension_gaps(target)] == []
