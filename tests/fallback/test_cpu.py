"""The CPU executor on a virtual mps that refuses what a Mac refuses: every shape of schema, aliasing, records."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

import torchdevice
import torchdevice.virtual
from tests.torches import on_pinned_torch
from tests.virtual.harness import on
from torchdevice import fallback


def _activate() -> None:
    torchdevice.activate(policy="portable")


@on("mps:real")
def test_results_come_back_with_gradients() -> None:
    _activate()
    matrix = torch.randn(4, 4)
    there, here = (matrix.to(device).requires_grad_() for device in ("mps", "cpu"))
    values = []
    for x in (there, here):
        found = torch.special.log_ndtr(x @ x.T)
        found.square().sum().backward()
        values.append(found)
    assert values[0].device.type == there.grad.device.type == "mps"
    torch.testing.assert_close(values[0].detach().to("cpu"), values[1].detach())
    torch.testing.assert_close(there.grad.to("cpu"), here.grad, rtol=1e-4, atol=1e-4)


@on("mps:real")
def test_named_tuples_stay_named_tuples() -> None:
    _activate()
    x = torch.tensor([[1.0, 2.0, 2.0]], device="mps")
    found = torch.mode(x)
    assert type(found) is torch.return_types.mode
    assert found.values.tolist() == [2.0]
    assert found.indices.device.type == "mps"


@on("mps:real")
def test_in_place_on_a_view_updates_its_base() -> None:
    _activate()
    base = torch.zeros(3, 4, device="mps")
    row = base[1]
    version = base._version
    assert row.put_(torch.tensor([2], device="mps"), torch.tensor([7.0], device="mps")) is row
    assert base.tolist() == [[0.0] * 4, [0.0, 0.0, 7.0, 0.0], [0.0] * 4]
    assert base._version > version
    columns = base[:, ::2]
    columns.put_(torch.tensor([0], device="mps"), torch.tensor([5.0], device="mps"))
    assert base[0, 0].item() == 5.0


@on("mps:real")
def test_out_is_filled_and_resized() -> None:
    _activate()
    x, index = torch.arange(5.0, device="mps"), torch.tensor([1, 4], device="mps")
    out = torch.empty(0, device="mps")
    assert torch.take(x, index, out=out) is out
    assert out.tolist() == [1.0, 4.0]
    sliced = torch.zeros(4, device="mps")
    torch.take(x, index, out=sliced[::2])
    assert sliced.tolist() == [1.0, 0.0, 4.0, 0.0]


@on("mps:real")
def test_arguments_that_share_a_storage_still_do() -> None:
    """torch refuses a write into memory that another argument reads: it must see the overlap that the caller made."""
    _activate()
    for x in (torch.arange(6.0), torch.arange(6.0, device="mps")):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            x.put_(torch.tensor([0, 1], device=x.device), x[4:])
    fallback.clear()
    both = torch.arange(8.0, device="mps")
    found = torch.special.legendre_polynomial_p(both[:4], both[4:])
    expected = torch.special.legendre_polynomial_p(torch.arange(4.0), torch.arange(4.0, 8.0))
    torch.testing.assert_close(found.to("cpu"), expected)
    (figures,) = fallback.totals().values()
    assert figures.bytes == 32 + 16  # the storage once, the result once


@on("mps:real")
def test_strides_and_expanded_inputs() -> None:
    _activate()
    wide = torch.randn(1, 5).expand(3, 5)
    there = wide[:1].to("mps").expand(3, 5)
    torch.testing.assert_close(torch.heaviside(there, there).to("cpu"), torch.heaviside(wide, wide))
    image = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    result = torch.heaviside(image.to("mps"), torch.zeros((), device="mps"))
    assert result.stride() == torch.heaviside(image, torch.zeros(())).stride() == image.stride()


@on("mps:real")
def test_factories_and_generators() -> None:
    _activate()
    assert torch.logspace(0, 2, 3, device="mps").tolist() == [1.0, 10.0, 100.0]
    rates = torch.full((100,), 3.0, device="mps")
    draws = []
    for _ in range(2):
        generator = torch.Generator("mps").manual_seed(7)
        draws.append([torch.poisson(rates, generator=generator) for _ in range(2)])
    assert torch.equal(draws[0][0], draws[1][0])
    assert torch.equal(draws[0][1], draws[1][1])
    assert not torch.equal(draws[0][0], draws[0][1])
    torch.manual_seed(1)
    first = torch.poisson(rates)
    torch.manual_seed(1)
    assert torch.equal(first, torch.poisson(rates))


@on("mps:real")
def test_what_users_miss_most() -> None:
    """Values against the CPU, on the right device, with gradients; the report has a line for each."""
    warnings.simplefilter("ignore")
    _activate()
    torch.manual_seed(0)
    logits = torch.randn(6, 2, 5)
    targets, lengths, sizes = torch.tensor([[1, 2], [3, 1]]), torch.tensor([6, 5]), torch.tensor([2, 2])
    volume, image = torch.randn(1, 2, 5, 6, 7), torch.randn(1, 2, 5, 7)
    tall, right, square = torch.randn(5, 3), torch.randn(5, 2), torch.randn(4, 4)
    functional = nn.functional
    # What to start from, what to do with it on a device, and the operator that falls back in it.
    cases: dict[str, tuple[torch.Tensor, Callable[[torch.Tensor, str], torch.Tensor], str]] = {
        "eigh": (square, lambda x, d: torch.linalg.eigh(x + x.mT).eigenvalues, "_linalg_eigh"),
        "lstsq": (tall, lambda x, d: torch.linalg.lstsq(x, right.to(d)).solution, "linalg_lstsq.out"),
        "ctc_loss": (
            logits,
            lambda x, d: functional.ctc_loss(x.log_softmax(2), targets.to(d), lengths, sizes),
            "_ctc_loss",
        ),
        "adaptive pool, average, 2": (
            image,
            lambda x, d: functional.adaptive_avg_pool2d(x, (2, 3)),
            "_adaptive_avg_pool2d",
        ),
        "adaptive pool, average, 3": (
            volume,
            lambda x, d: functional.adaptive_avg_pool3d(x, (2, 4, 3)),
            "_adaptive_avg_pool3d",
        ),
        "adaptive pool, maximum, 2": (
            image,
            lambda x, d: functional.adaptive_max_pool2d(x, (2, 3)),
            "adaptive_max_pool2d",
        ),
        "adaptive pool, maximum, 3": (
            volume,
            lambda x, d: functional.adaptive_max_pool3d(x, (2, 4, 3)),
            "adaptive_max_pool3d",
        ),
        "mode": (tall, lambda x, d: x.mode(0).values, "mode"),
        "take": (tall, lambda x, d: x.take(torch.tensor([0, 3], device=d)), "take"),
        "put_": (
            tall,
            lambda x, d: (x * 1).put_(torch.tensor([1, 4], device=d), torch.tensor([7.0, 8.0], device=d)),
            "put_",
        ),
        "logspace": (tall, lambda x, d: x.sum() * torch.logspace(0, 2, 3, device=d), "logspace.out"),
        "sparse CSR mm": (tall, lambda x, d: square[:, :2].T.to(d).to_sparse_csr() @ x[:4], "mm"),
        "sparse CSR": (square, lambda x, d: x.to_sparse_csr() @ right[:4].to(d), "_to_sparse_csr"),
        "svd": (tall, lambda x, d: torch.linalg.svd(x, full_matrices=False).S, ""),
        "interpolate": (volume, lambda x, d: functional.interpolate(x, scale_factor=2.0), ""),
        "pdist": (tall, lambda x, d: functional.pdist(x), "_pdist_forward"),
        "matrix_exp": (tall[:3], lambda x, d: torch.linalg.matrix_exp(x), "linalg_matrix_exp"),
    }
    lacking = {name.removeprefix("aten::") for name, route in fallback.matrix().rows.items() if route in ("cpu", "mlx")}
    assert len(lacking & {operator for _, _, operator in cases.values()}) >= 3  # the fewer, the newer torch is
    for name, (value, function, operator) in cases.items():
        results = []
        for device in ("cpu", "mps"):
            x = value.detach().clone().to(device).requires_grad_()
            result = function(x, device)
            result.sum().backward()
            assert result.device.type == x.grad.device.type == device, name
            results.append((result.detach().to("cpu"), x.grad.to("cpu")))
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4, msg=name)
        if operator and (on_pinned_torch() or operator in lacking):
            lines = range(function.__code__.co_firstlineno, function.__code__.co_firstlineno + 2)
            rows = [row for row in torchdevice.report().fallbacks if row.operator == f"aten::{operator}"]
            assert any(row.site.file == __file__ and row.site.line in lines for row in rows), (name, rows)
    text = str(torchdevice.report())
    assert all(f"aten::{operator}" in text for _, _, operator in cases.values() if operator in lacking)
    if on_pinned_torch():
        assert all(f"aten::{operator}" in text for _, _, operator in cases.values())


@on("mps:real")
def test_packed_sequences_stay_packed() -> None:
    _activate()
    torch.manual_seed(0)
    start = torch.randn(4, 2, 3)
    for kind in (nn.RNN, nn.GRU, nn.LSTM):
        found = []
        layer = kind(3, 5)
        for device in ("cpu", "mps"):
            layer = layer.to(device)
            layer.zero_grad()
            x = start.clone().to(device).requires_grad_()
            packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([4, 2]))
            result, _ = layer(packed)
            assert isinstance(result, nn.utils.rnn.PackedSequence)
            padded, sizes = nn.utils.rnn.pad_packed_sequence(result)
            padded.square().sum().backward()
            assert result.data.device.type == x.grad.device.type == layer.weight_hh_l0.grad.device.type == device
            assert sizes.tolist() == [4, 2]
            found.append([t.detach().to("cpu") for t in (padded, x.grad, layer.weight_hh_l0.grad)])
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


@on("mps:real")
def test_the_operators_own_errors_come_through() -> None:
    _activate()
    x = torch.randn(3, 4, device="mps")
    for call in (
        lambda x: torch.linalg.eigvals(x),
        lambda x: x.take(torch.tensor([99], device=x.device)),
        lambda x: torch.mode(x, dim=5),
        lambda x: nn.functional.adaptive_max_pool3d(x, (1, 1, 1)),
    ):
        with pytest.raises((RuntimeError, IndexError, ValueError)) as here:
            call(x.detach().to("cpu"))
        with pytest.raises(type(here.value)) as there:
            call(x)
        assert str(there.value).splitlines()[0] == str(here.value).splitlines()[0]
        assert not isinstance(there.value, NotImplementedError)
    assert torch.mode(x).values.shape == (3,)  # an error is not remembered as incapability


@on("mps:real")
def test_the_record_names_operator_place_and_figures() -> None:
    _activate()
    x = torch.randn(3, 4, device="mps")
    for _ in range(3):
        x.mode()
    ((record, figures),) = fallback.totals().items()
    assert (record.operator, record.executor, record.dtypes) == ("aten::mode", "cpu", ("float32",))
    assert record.site.file == __file__
    assert "has no kernel" in record.reason
    assert figures.calls == 3
    assert figures.bytes == 3 * (48 + 12 + 24)
    assert figures.seconds > 0
    (row,) = torchdevice.report().fallbacks
    assert (row.operator, row.calls, row.site) == ("aten::mode", 3, record.site)
    assert f"test_cpu.py:{row.site.line}" in str(torchdevice.report())


@on("mps:real", env={"TORCHDEVICE_FALLBACK": "off"})
def test_off_refuses_and_says_where() -> None:
    _activate()
    with pytest.raises(torchdevice.FallbackRefused, match=r"aten::mode\(float32\) at .*test_cpu\.py:\d+.*\n?.*Hint"):
        torch.zeros(2, device="mps").mode()


@on("mps:real")
def test_what_the_target_has_is_not_touched_and_everything_comes_back() -> None:
    def slots() -> dict[str, str]:
        names = ("aten::add.Tensor", "aten::mm", "aten::mode", "aten::special_log_ndtr", "aten::relu")
        dumps = {name: torch._C._dispatch_dump(name).splitlines() for name in names}
        return {name: next(line for line in lines if line.startswith("MPS:")) for name, lines in dumps.items()}

    before = slots()
    _activate()
    during = slots()
    assert {name for name in before if before[name] != during[name]} == {"aten::mode", "aten::special_log_ndtr"}
    torchdevice.deactivate()
    assert slots() == before
    with pytest.raises(NotImplementedError):
        torch.zeros(2, device="mps").mode()


@on("mps:real")
def test_threads_autocast_and_transforms() -> None:
    _activate()
    x = torch.randn(8, 4, device="mps")
    results: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: results.append(x.mode().values)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(torch.equal(result, results[0]) for result in results)
    assert sum(figures.calls for figures in fallback.totals().values()) == 8
    with torch.autocast("mps", torch.float16), torch.no_grad():
        assert torch.linalg.eigvalsh((x.T @ x).float()).device.type == "mps"
    mapped = torch.func.vmap(torch.linalg.matrix_exp)(torch.zeros(2, 3, 3, device="mps"))
    assert torch.equal(mapped.to("cpu"), torch.eye(3).expand(2, 3, 3))
    slope = torch.func.grad(lambda v: torch.linalg.matrix_exp(v).sum())(torch.zeros(3, 3, device="mps"))
    assert slope.device.type == "mps"


@on("")
def test_a_cpu_target_registers_nothing() -> None:
    torchdevice.activate()
    assert not fallback.coverage.covered
