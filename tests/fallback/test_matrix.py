"""`fallback.matrix()`: every aten operator is somewhere, and it is where a call would run."""

from __future__ import annotations

import pytest
import torch

import torchdevice
from tests.virtual.harness import on
from torchdevice import fallback


@on("mps:real", env={"TORCHDEVICE_FALLBACK": "mlx,cpu"})
def test_every_operator_has_its_place() -> None:
    torchdevice.activate(policy="portable")
    matrix = fallback.matrix()
    assert matrix.target == "mps"
    expected = {"aten::add.Tensor": "native", "aten::mode": "cpu", "aten::avg_pool2d": "guarded"}
    assert {name: matrix.rows[name] for name in expected} == expected
    assert matrix.rows["aten::take"] in ("mlx", "cpu")
    assert matrix.summary()["native"] > 2000
    assert sum(matrix.summary().values()) == len(matrix.rows)
    assert matrix.to_json()["operators"] == matrix.rows
    assert "aten::mode  cpu" in str(matrix)
    assert torch.zeros(2, device="mps").take(torch.tensor([1], device="mps")).device.type == "mps"


@on("mps:real", env={"TORCHDEVICE_FALLBACK": "mlx,cpu"})
def test_mlx_is_asked_first_where_it_pays() -> None:
    from torchdevice.fallback.mlx import executor

    if not executor.installed():
        return
    torchdevice.activate(policy="portable")
    x = torch.arange(6.0, device="mps").reshape(2, 3)
    index = torch.tensor([4, 1], device="mps")
    assert x.take(index).tolist() == [4.0, 1.0]
    executor.PAYS_FROM["cpu"]["movement"] = 0
    assert x.take(index).tolist() == [4.0, 1.0]
    ran = {record.executor: record.reason for record in fallback.totals()}
    assert set(ran) == {"cpu", "mlx"}
    assert "mlx: the CPU is faster" in ran["cpu"]


def test_without_a_target_it_says_what_to_do() -> None:
    with pytest.raises(torchdevice.ConfigError, match="Hint"):
        fallback.matrix()
