"""`torchdevice ops` and `torchdevice calibrate`: text, JSON, filters, what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchdevice.cli import main
from torchdevice.fallback.mlx import costs


def test_operators_of_another_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "--target", "mps", "--search", "aten::mode"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("mps, from torch's list of kernels")
    assert ["aten::mode", "cpu"] in [line.split() for line in out]
    assert main(["ops", "--target", "mps", "--search", "linalg", "--route", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["target"]) == (1, "mps")
    assert found["operators"]["aten::linalg_eig"] == "cpu"
    assert set(found["operators"].values()) == {"cpu"}
    assert all("linalg" in name for name in found["operators"])


def test_operators_of_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ops", "--target", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "every operator is native"
    assert main(["ops", "--target", "cpu", "--search", "no such thing"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no such operator"


@pytest.mark.parametrize("target", ["toaster", "hpu"])
def test_a_target_that_is_not_known(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ops", "--target", target])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)


def test_a_measurement_is_kept_and_removed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("mlx.core")
    monkeypatch.setenv("TORCHDEVICE_CACHE", str(tmp_path))
    words = ["calibrate", "--search", "aten::mv", "--seconds", "0.001"]
    assert main([*words, "--dry-run", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["operator"] for row in shown["measured"]] == ["aten::mv"] * len(shown["measured"])
    assert not list(tmp_path.iterdir())
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "MLX / CPU (elements)" in out
    assert f"stored in {costs.table_path()}" in out
    kept = costs.read_costs(costs.device_kind(), costs.versions())
    assert (set(kept.by_operator), kept.source) == ({"aten::mv"}, str(costs.table_path()))
    assert main(["calibrate", "--search", "aten::dot", "--seconds", "0.001", "--json"]) == 0
    again = costs.read_costs(costs.device_kind(), costs.versions())
    assert set(again.by_operator) == {"aten::mv", "aten::dot"}
    assert main(["calibrate", "--reset"]) == 0
    assert not list(tmp_path.iterdir())


def test_nothing_to_measure(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlx.core")
    with pytest.raises(SystemExit):
        main(["calibrate", "--search", "nothing"])
    assert "no operator with an MLX rule has 'nothing' in its name" in capsys.readouterr().err
