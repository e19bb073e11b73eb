"""A fallback inside everything that torch wraps around operators: the same tests on two targets with gaps of their own.

On `mps` the gaps are those of a Mac; on `xpu` one is made, by saying that its kernel only refuses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import torchdevice
import torchdevice.virtual
from tests.virtual.harness import on
from torchdevice import fallback

# MPS lacks it in every version of torch that we support.
OPERATOR = "aten::special_log_ndtr"
log_ndtr = torch.special.log_ndtr


def on_both(body: Callable[[str], None]) -> Callable[[], None]:
    """A test on each target, in one process each."""
    body.__globals__[f"{body.__name__}_on_xpu"] = on("xpu")(_with(body, "xpu", "_on_xpu"))
    return on("mps:real")(_with(body, "mps", ""))


def _with(body: Callable[[str], None], device: str, suffix: str) -> Callable[[], None]:
    def run() -> None:
        torchdevice.activate(policy="portable")
        if device == "xpu":
            fallback.coverage.undo()
            fallback.engage(device, "cpu", "a test", refused={(OPERATOR, "")})
        body(device)

    run.__name__, run.__module__ = body.__name__ + suffix, body.__module__
    return run


def calls(operator: str = OPERATOR) -> int:
    return sum(figures.calls for record, figures in fallback.totals().items() if record.operator == operator)


def pair(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The same leaf on the target and on the CPU."""
    torch.manual_seed(0)
    x = torch.randn(3, 3)
    return x.to(device).requires_grad_(), x.clone().requires_grad_()


def same(there: Any, here: Any) -> None:
    torch.testing.assert_close(there.detach().to("cpu"), here.detach(), rtol=1e-4, atol=1e-4)


@on_both
def test_autocast_and_no_grad(device: str) -> None:
    there, here = pair(device)
    with torch.no_grad():
        result = log_ndtr(there)
    assert (result.requires_grad, result.device.type) == (False, device)
    same(result, log_ndtr(here))
    with torch.inference_mode():
        same(log_ndtr(there), log_ndtr(here))
    with torch.autocast(device, torch.float16):
        product = there @ there
        result = log_ndtr(product.float())
        assert (product.dtype, result.dtype, result.device.type) == (torch.float16, torch.float32, device)
        result.sum().backward()
    assert there.grad.device.type == device
    assert calls() == 3


@on_both
def test_transforms(device: str) -> None:
    there, here = pair(device)
    stack = torch.stack([torch.zeros(3, 3), torch.eye(3)])
    same(torch.func.vmap(log_ndtr)(stack.to(device)), torch.func.vmap(log_ndtr)(stack))
    for transform in (
        lambda x: torch.func.grad(lambda v: log_ndtr(v).sum())(x),
        lambda x: torch.func.jvp(log_ndtr, (x,), (torch.ones_like(x),))[1],
        lambda x: torch.func.vjp(log_ndtr, x)[1](torch.ones_like(x))[0],
        lambda x: torch.func.jacrev(log_ndtr)(x),
        lambda x: torch.func.vmap(torch.func.grad(lambda v: log_ndtr(v).sum()))(torch.stack([x, x])),
        lambda x: torch.func.grad(lambda v: torch.func.grad(lambda w: log_ndtr(w).sum())(v).sum())(x),
    ):
        result = transform(there.detach())
        assert result.device.type == device
        same(result, transform(here.detach()))


@on_both
def test_checkpointing(device: str) -> None:
    for reentrant in (False, True):
        there, here = pair(device)
        before = calls()
        checkpoint(lambda x: log_ndtr(x).square(), there, use_reentrant=reentrant).sum().backward()
        assert calls() >= before + 2  # computed again in the backward pass
        log_ndtr(here).square().sum().backward()
        assert there.grad.device.type == device
        same(there.grad, here.grad)


@on_both
def test_compiled(device: str) -> None:
    """The graph has the operator; it falls back when the graph runs."""
    graphs: list[Any] = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    there, here = pair(device)
    result = torch.compile(lambda x: log_ndtr(x) + 1, backend=keep, fullgraph=True)(there)
    same(result, log_ndtr(here) + 1)
    (graph,) = graphs
    assert any("log_ndtr" in str(node.target) for node in graph.graph.nodes)
    assert calls() == 1
    compiled = torch.compile(lambda x: log_ndtr(x).square().sum(), backend="aot_eager", fullgraph=True)
    compiled(there).backward()
    log_ndtr(here).square().sum().backward()
    assert there.grad.device.type == device
    same(there.grad, here.grad)


@on_both
def test_threads(device: str) -> None:
    _, here = pair(device)
    log_ndtr(here).sum().backward()
    found: list[torch.Tensor] = []

    def work() -> None:
        x = here.detach().to(device).requires_grad_()
        log_ndtr(x).sum().backward()
        found.append(x.grad)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for gradient in found:
        same(gradient, here.grad)


@on_both
def test_a_fallback_inside_another(device: str) -> None:
    """The CPU's kernel of an operator of ours calls, for tensors of the target, an operator that falls back too."""
    library = torch.library.Library("nested_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    inner = torch.zeros(2, 2).to(device)
    library.impl("twice", lambda x: 4 * x * log_ndtr(inner).to("cpu").exp()[0, 0], "CPU")
    plan = fallback.kernels.read_plan("nested_test::twice")
    router = fallback.coverage.router
    assert plan is not None
    assert router is not None
    result = router.run(plan, "a test", (torch.ones(2).to(device),), {})
    assert (result.tolist(), result.device.type) == (pytest.approx([2.0, 2.0]), device)
    assert (calls(), calls("nested_test::twice")) == (1, 1)


@on_both
def test_a_full_device_raises_as_ever_and_is_not_taken_for_a_gap(device: str) -> None:
    there, _ = pair(device)
    big = torch.zeros(256, 256, device=device)
    expected = RuntimeError if device == "mps" else torch.OutOfMemoryError
    torchdevice.virtual.set_memory_limit("300KiB")
    for full in (log_ndtr, torch.neg):  # a fallback; an operator that the target has
        with pytest.raises(expected, match="out of memory"):
            full(big)
    torchdevice.virtual.set_memory_limit("1GiB")
    assert log_ndtr(there).device.type == device
    if device == "mps":
        image = torch.ones(1, 1, 64, 64, device=device)  # a guarded operator, of a dtype that it takes
        torchdevice.virtual.set_memory_limit("17KiB")
        with pytest.raises(expected, match="out of memory"):
            torch.nn.functional.avg_pool2d(image, 1)
        torchdevice.virtual.set_memory_limit("1GiB")
        before = len(fallback.totals())
        torch.nn.functional.avg_pool2d(image, 1)
        assert len(fallback.totals()) == before
