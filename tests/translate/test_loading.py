"""Checkpoints and packages that name a device that is not here, on a host without an accelerator."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.package import PackageExporter, PackageImporter

from tests.accelerated.test_checkpoints import Holding


@pytest.mark.parametrize("location", [None, "cpu", "cuda", torch.device("cpu"), {"cpu": "cuda"}], ids=str)
def test_a_tensor_that_holds_another(location: Any, active: None) -> None:
    buffer = io.BytesIO()
    torch.save(Holding(torch.ones(2)), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, map_location=location, weights_only=False)
    assert type(loaded) is Holding
    assert loaded.device == loaded.held.device == torch.device("cpu")
    assert loaded.held.tolist() == [1, 1]


LOCATIONS = {"none": None, "name": "cuda", "table": {"cpu": "cuda:1"}, "function": lambda storage, location: None}


@pytest.mark.parametrize("location", LOCATIONS.values(), ids=LOCATIONS)
def test_a_package(location: Any, active: None, tmp_path: Path) -> None:
    with PackageExporter(tmp_path / "package.pt") as exporter:
        exporter.save_pickle("model", "weights.pkl", {"w": torch.ones(2)})
    loaded = PackageImporter(tmp_path / "package.pt").load_pickle("model", "weights.pkl", map_location=location)
    assert loaded["w"].device == torch.device("cpu")
    assert loaded["w"].tolist() == [1, 1]
