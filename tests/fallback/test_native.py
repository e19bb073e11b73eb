"""The fallback's kernel in C++: the CPU's values, with copies and without; what it counts; what is left to Python."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import torchdevice
from tests.virtual.harness import on
from torchdevice import fallback
from torchdevice.fallback import coverage, native
from torchdevice.virtual import build

SAMPLES = 2
# torch 2.9 does not tell which kernel stands below another.
told_apart = pytest.mark.skipif(
    not hasattr(torch.library, "get_kernel"), reason="before torch 2.10 the kernels in Python compute all fallbacks"
)
WAYS = ("in place", "copies", "python")


def activate(way: str) -> None:
    """A session whose fallbacks take one of the three ways."""
    if way == "copies":  # as for a real accelerator
        native._library = lambda: build.load(build.FALLBACK)
    if way == "python":
        native._library = lambda: None
    torchdevice.activate(policy="portable")
    assert bool(coverage.native.covered) == (way != "python")
    fallback.clear()


def leaves(value: Any) -> Iterator[torch.Tensor]:
    return (each for each in torch.utils._pytree.tree_leaves(value) if isinstance(each, torch.Tensor))


def on_mps(value: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda each: each.to("mps") if isinstance(each, torch.Tensor) else each, value)


def sweep() -> set[str]:
    """Torch's own samples on both devices. The operators that fell back."""
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    called: set[str] = set()
    draws = {plan.name for plan in coverage.covered.values() if plan.samples}
    wanted = {gap.name.removeprefix("aten::").partition(".")[0].strip("_") for gap in coverage.covered}
    for op in op_db:
        name = f"{op.name} {op.aten_name}".replace(".", "_")
        if op.name.startswith("jiterator") or not any(each in name for each in wanted):
            continue
        samples = op.sample_inputs("cpu", torch.float32) if torch.float32 in op.supported_dtypes("cpu") else ()
        for sample in itertools.islice(samples, SAMPLES):
            given = (sample.input, *sample.args), sample.kwargs
            here = op.op(*given[0], **given[1])
            fallback.clear()
            arguments, options = on_mps(given)
            there = op.op(*arguments, **{**options, **({"device": "mps"} if "device" in options else {})})
            found = {record.operator for record in fallback.totals()}
            called |= found
            if found and not found & draws:
                for one, other in zip(leaves(here), leaves(there), strict=True):
                    assert other.device.type == "mps", op.name
                    torch.testing.assert_close(other.to("cpu"), one.to(other.dtype), equal_nan=True, msg=op.name)
    return called


@told_apart
@pytest.mark.parametrize("way", ["in place", "copies"])
@on("mps:real")
def test_the_values_of_torchs_own_samples(way: str) -> None:
    activate(way)
    called = sweep()
    assert len(called & coverage.native.covered) > 15, sorted(called)


@told_apart
@pytest.mark.parametrize("way", WAYS)
@on("mps:real")
def test_in_place_out_views_lists_and_shared_storages(way: str) -> None:
    activate(way)
    base = torch.zeros(3, 4, device="mps")
    row, version = base[1], base._version
    assert row.put_(torch.tensor([2], device="mps"), torch.tensor([7.0], device="mps")) is row
    assert base.tolist() == [[0.0] * 4, [0.0, 0.0, 7.0, 0.0], [0.0] * 4]
    assert base._version > version
    out = torch.empty(0, device="mps")
    assert torch.take(base, torch.tensor([6], device="mps"), out=out) is out
    assert out.tolist() == [7.0]
    sliced = torch.zeros(4, device="mps")
    torch.take(base, torch.tensor([6, 6], device="mps"), out=sliced[::2])
    assert sliced.tolist() == [7.0, 0.0, 7.0, 0.0]
    expanded = torch.arange(3.0, device="mps").expand(2, 3)
    assert torch.mode(expanded, 0).values.tolist() == [0.0, 1.0, 2.0]
    assert torch.take(expanded.T, torch.tensor([1, 5], device="mps")).tolist() == [0.0, 2.0]
    # A write is seen by whoever looks at the same memory.
    whole = torch.arange(4.0, device="mps")
    whole[:2].put_(torch.tensor([0], device="mps"), whole[2:3])
    assert whole.tolist() == [2.0, 1.0, 2.0, 3.0]
    assert torch.logspace(0, 1, 2, device="mps", dtype=torch.float32).tolist() == [1.0, 10.0]


@told_apart
@pytest.mark.parametrize("way", WAYS)
@on("mps:real")
def test_writes_that_the_schema_does_not_declare(way: str) -> None:
    """`batch_norm_update_stats` changes the running statistics and returns new tensors."""
    activate(way)
    update = torch.ops.aten.batch_norm_update_stats.default
    x, mean, var = torch.randn(4, 3), torch.zeros(3), torch.ones(3)
    given = [each.to("mps") for each in (x, mean, var)]
    there, here = update(*given, 0.1), update(x, mean, var, 0.1)
    for one, other in zip((*given[1:], *there), (mean, var, *here), strict=True):
        assert one.device.type == "mps"
        torch.testing.assert_close(one.to("cpu"), other)
    assert {record.operator for record in fallback.totals()} == {"aten::batch_norm_update_stats"}


@told_apart
@pytest.mark.parametrize("way", WAYS)
@on("mps:real")
def test_the_value_of_an_expanded_argument_counts_once(way: str) -> None:
    activate(way)
    one, rows = torch.arange(1.0), torch.arange(6.0).view(3, 2)
    on_the_cpu = torch.mode(one.expand(1000)), torch.mode(rows[:, :1].expand(3, 4), 0)
    there, rows = one.to("mps"), rows.to("mps")
    found = torch.mode(there.expand(1000)), torch.mode(rows[:, :1].expand(3, 4), 0)
    assert [each.values.tolist() for each in found] == [each.values.tolist() for each in on_the_cpu]
    (row,) = torchdevice.report().fallbacks
    assert row.bytes == 4 + (4 + 8) + 3 * 4 + 4 * (4 + 8)  # values, results, indices; of both calls


@told_apart
@pytest.mark.parametrize("way", ["in place", "copies"])
@on("mps:real")
def test_lines_calls_seconds_and_bytes(way: str) -> None:
    activate(way)
    heard: list[object] = []
    with fallback.fallbacks.listening(heard.append):
        x = torch.randn(1, 4, 2, 2, device="mps")
        for _ in range(5):
            torch.channel_shuffle(x, 2)
        torch.channel_shuffle(x, 2)
        torch.channel_shuffle(x.to(torch.float16), 2)
        nn.functional.adaptive_max_pool3d(torch.randn(1, 2, 4, 4, 4, device="mps"), 2)
    here = sys._getframe().f_lineno
    rows = sorted(
        (record.operator, record.site.line - here, record.dtypes, figures.calls, figures.bytes)
        for record, figures in fallback.totals().items()
    )
    assert rows == [
        ("aten::adaptive_max_pool3d", -1, ("float32",), 1, 512 + 64 + 128),
        ("aten::channel_shuffle", -4, ("float32",), 5, 5 * (64 + 64)),
        ("aten::channel_shuffle", -3, ("float32",), 1, 64 + 64),
        ("aten::channel_shuffle", -2, ("float16",), 1, 32 + 32),
    ]
    assert all(record.site.file == __file__ for record in fallback.totals())
    assert all(figures.seconds > 0 for figures in fallback.totals().values())
    assert len(heard) == 4
    fallback.clear()
    assert fallback.totals() == {}
    torch.channel_shuffle(x, 2)
    ((_, figures),) = fallback.totals().items()
    assert figures.calls == 1


@told_apart
@on("mps:real")
def test_code_that_is_made_again_and_again_costs_no_memory() -> None:
    activate("in place")
    x = torch.randn(1, 4, 2, 2, device="mps")
    for _ in range(300):
        exec(compile("torch.channel_shuffle(x, 2)", "made", "exec"), {"torch": torch, "x": x})
        if _ == 200:
            fallback.clear()
    ((record, figures),) = fallback.totals().items()
    assert (record.site.file, figures.calls) == ("made", 99)


@told_apart
@on("mps:real")
def test_threads_and_backward() -> None:
    activate("in place")
    x = torch.randn(1, 4, 2, 2, device="mps")

    def work() -> None:
        for _ in range(200):
            torch.channel_shuffle(x, 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ((_, figures),) = fallback.totals().items()
    assert figures.calls == 800
    fallback.clear()
    weight = torch.randn(1, 1, 4, 4, 4, device="mps", requires_grad=True)
    nn.functional.adaptive_max_pool3d(weight, 2).sum().backward()
    sites = {record.operator: str(record.site) for record in fallback.totals()}
    assert sites["aten::adaptive_max_pool3d_backward"] == "<backward pass>:0"
    assert weight.grad is not None
    assert weight.grad.device.type == "mps"


@told_apart
@on("mps:real")
def test_deactivation_takes_it_back() -> None:
    x = torch.randn(1, 4, 2, 2, device="mps")
    for _ in range(2):
        activate("in place")
        assert torch.channel_shuffle(x, 2).device.type == "mps"
        torchdevice.deactivate()
        with pytest.raises(NotImplementedError, match="not currently implemented for the MPS device"):
            torch.channel_shuffle(x, 2)
    gc.collect()


@told_apart
@on("mps:real", env={"TORCHDEVICE_FALLBACK": "off"})
def test_nothing_is_covered_where_fallbacks_are_off() -> None:
    torchdevice.activate(policy="portable")
    assert coverage.native.covered == set()


@told_apart
@on("mps:real")
def test_a_dtype_that_the_device_lacks_is_narrowed() -> None:
    for way in ("in place", "copies"):
        activate(way)
        lengths = torch.tensor([3], device="mps")
        found = torch.segment_reduce(torch.arange(3, dtype=torch.float64), "sum", lengths=lengths)
        assert (found.dtype, found.device.type, found.tolist()) == (torch.float32, "mps", [3.0]), way
        torchdevice.deactivate()


@on("mps:real")
def test_random_numbers_and_sparse_layouts_are_left_to_python() -> None:
    torchdevice.activate(policy="portable")
    left = {plan.name for plan in coverage.covered.values()} - coverage.native.covered
    assert {plan.name for plan in coverage.covered.values() if plan.samples} <= left
    assert not any("sparse" in name for name in coverage.native.covered)
