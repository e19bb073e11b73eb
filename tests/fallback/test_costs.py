"""When MLX pays: the table that is kept, and the measurement that fills it. Nothing here asserts a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchdevice.fallback.mlx import costs
from torchdevice.fallback.mlx.costs import SHIPPED, Costs, read_costs, write_costs

VERSIONS = {"torch": "1", "mlx": "2"}
TABLE = {"schema": 1, "device": "gpu", "versions": VERSIONS, "pays_from": {"aten::mm": 64, "aten::exp": None}}


def test_a_measured_table_counts_before_the_shipped_one(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "table.json"
    assert read_costs("gpu", VERSIONS, path) == Costs(SHIPPED["gpu"])
    write_costs(TABLE, path)
    found = read_costs("gpu", VERSIONS, path)
    assert [found.pays_from(name, "product") for name in ("aten::mm", "aten::exp", "aten::bmm")] == [64, None, 1 << 18]
    assert found.source == str(path)
    assert [each.name for each in path.parent.iterdir()] == ["table.json"]


@pytest.mark.parametrize(
    ("device", "versions"), [("cpu", VERSIONS), ("gpu", {**VERSIONS, "mlx": "3"}), ("gpu", {**VERSIONS, "torch": "3"})]
)
def test_a_table_of_another_device_or_version_does_not_count(
    device: str, versions: dict[str, str], tmp_path: Path
) -> None:
    path = write_costs(TABLE, tmp_path / "table.json")
    assert read_costs(device, versions, path) == Costs(SHIPPED[device])


def test_a_broken_table_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text('{"schema": 1, "dev')
    assert read_costs("gpu", VERSIONS, path) == Costs(SHIPPED["gpu"])


def test_the_table_is_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHDEVICE_CACHE", str(tmp_path))
    assert costs.table_path().parent == tmp_path


def test_from_which_size_on() -> None:
    pytest.importorskip("mlx.core")
    from torchdevice.fallback.mlx.calibration import Measurement, pays_from

    def rows(name: str, *ratios: float) -> list[Measurement]:
        return [Measurement(name, 10 ** (n + 1), ratio * 100, 100) for n, ratio in enumerate(ratios)]

    measured = {
        "always": (0.5, 0.5, 0.5),
        "large": (2, 0.5, 0.5),
        "never": (0.5, 0.5, 2),
        "hardly": (0.95, 0.95, 0.95),
        "gap": (0.5, 2, 0.5),
    }
    found = pays_from(row for name, ratios in measured.items() for row in rows(name, *ratios))
    assert found == {"always": 10, "large": 100, "never": None, "hardly": None, "gap": 1000}


def test_every_rule_can_be_measured() -> None:
    """The example of each is a call that both executors take."""
    pytest.importorskip("mlx.core")
    from torchdevice.fallback.mlx import calibration, executor

    work = calibration.jobs(executor.rules(), sizes=(64,))
    measured = list(calibration.measure(work, "cpu", seconds=0.0))
    assert [name for (name, _), row in zip(work, measured, strict=True) if row is None] == []
    assert {row.operator for row in measured if row} == set(executor.rules())
    table = calibration.as_table([row for row in measured if row], "cpu")
    assert set(table["pays_from"]) == set(executor.rules())
