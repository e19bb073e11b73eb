"""`fallback.matrix()`: every aten operator is somewhere, and it is where a call would run."""

from __future__ import annotations

import importlib
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import torchdevice
import torchdevice.virtual
from tests.torches import recorded_on_pinned_torch
from tests.virtual.harness import on
from torchdevice import fallback
from torchdevice.fallback import kernels
from torchdevice.virtual.supported import listed


@on("mps:real", env={"TORCHDEVICE_FALLBACK": "mlx,cpu"})
def test_every_operator_has_its_place() -> None:
    torchdevice.activate(policy="portable")
    matrix = fallback.matrix()
    assert matrix.target == "mps"
    expected = {"aten::add.Tensor": "native", "aten::mode": "cpu", "aten::avg_pool2d": "guarded"}
    assert {name: matrix.rows[name] for name in expected} == expected
    assert matrix.rows["aten::special_log_ndtr"] in ("mlx", "cpu")
    assert matrix.summary()["native"] > 2000
    assert sum(matrix.summary().values()) == len(matrix.rows)
    assert matrix.to_json()["operators"] == matrix.rows
    assert "aten::mode  cpu" in str(matrix)
    assert torch.zeros(2, device="mps").mode().values.device.type == "mps"


@recorded_on_pinned_torch
@on("mps:real", env={"TORCHDEVICE_FALLBACK": "mlx,cpu"})
def test_the_pages_are_printed_from_the_tables() -> None:
    from tools.docs.fallback import pages

    for path, text in pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make docs`"


@pytest.mark.skipif(find_spec("mlx") is None, reason="mlx is not installed")
@pytest.mark.skipif("take" in listed("MPS"), reason="no operator that MPS lacks in this torch has an MLX rule")
@on("mps:real", env={"TORCHDEVICE_FALLBACK": "mlx,cpu"})
def test_mlx_is_asked_first_where_the_table_says_that_it_pays() -> None:
    from torchdevice.fallback.mlx import costs

    x = torch.arange(6.0, device="mps").reshape(2, 3)
    index = torch.tensor([4, 1], device="mps")
    for least, executor in ((None, "cpu"), (0, "mlx"), (1000, "cpu")):
        table = costs.Costs(by_operator={"aten::take": least})
        costs.costs.cache_clear()
        costs.read_costs = lambda *_, table=table: table
        torchdevice.activate(policy="portable")
        fallback.clear()
        assert x.take(index).tolist() == [4.0, 1.0]
        ((record, _),) = fallback.totals().items()
        assert record.executor == executor
        assert ("mlx: the CPU is faster" in record.reason) == (executor == "cpu")
        torchdevice.deactivate()


def test_another_target_is_read_from_torchs_list() -> None:
    matrix = fallback.matrix("mps")
    expected = {"aten::add.Tensor": "native", "aten::mode": "cpu", "aten::avg_pool2d": "guarded"}
    assert {name: matrix.rows[name] for name in expected} == expected
    assert "native_functions.yaml" in matrix.source
    assert set(matrix.select("mode", "cpu").rows) <= set(matrix.select("mode").rows) < set(matrix.rows)
    assert set(fallback.matrix("cpu").rows.values()) == {"native", "nowhere"}
    # torch's list has XPU's kernels since 2.14.
    if "add.Tensor" in listed("XPU"):
        assert fallback.matrix("xpu").rows["aten::add.Tensor"] == "native"
    with pytest.raises(torchdevice.ConfigError, match="not built for it"):
        fallback.matrix("hpu")


@on("", env={"TORCHDEVICE_FALLBACK": "mlx,cpu"})
def test_what_is_expected_of_a_mac_is_what_a_session_does() -> None:
    expected = fallback.matrix("mps").rows
    torchdevice.virtual.install("mps", support="real")
    torchdevice.activate(policy="portable")
    running = fallback.matrix().rows
    different = {name for name in running if running[name] != expected[name]}
    in_cpp = {f"aten::{row}" for row in kernels.GUARDED_IN_CPP["mps"]}  # the library is there
    assert {running[name] for name in in_cpp} == {"guarded"}
    different -= in_cpp
    assert len(different) < 25, different  # the virtual device has a few kernels more and a few less than Metal


def test_without_a_target_it_says_what_to_do() -> None:
    with pytest.raises(torchdevice.ConfigError, match="Hint"):
        fallback.matrix()


@on("mps:real", env={"TORCHDEVICE_FALLBACK": "mlx,cpu"})
def test_an_mlx_that_cannot_be_imported_is_done_without() -> None:
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "mlx")
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "core.py").write_text("raise ImportError('made for another system')")
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        with pytest.warns(torchdevice.TorchDeviceWarning, match="cannot be imported .made for another system"):
            torchdevice.activate(policy="portable")
        assert torch.arange(6.0, device="mps").mode().values.item() == 0
    ((record, _),) = fallback.totals().items()
    assert record.executor == "cpu"
