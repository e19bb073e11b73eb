"""safetensors: files are opened for the device that is here, and native code gets the memory that it asks for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import safetensors
import safetensors.torch
import torch
from safetensors import safe_open

import torchdevice

NATIVE = safe_open  # torchdevice is inactive here


@pytest.fixture
def archive(tmp_path: Path) -> str:
    path = str(tmp_path / "weights.safetensors")
    safetensors.torch.save_file({"a": torch.arange(6.0).view(2, 3), "b": torch.ones(2, dtype=torch.int64)}, path)
    return path


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:3", "mps", 0, 1])
def test_a_file_is_opened_for_the_device_that_is_here(archive: str, active: None, device: str | int) -> None:
    with safetensors.safe_open(archive, "pt", device=device) as file:
        assert isinstance(file, safetensors.safe_open)
        assert isinstance(file, NATIVE)
        assert sorted(file.keys()) == ["a", "b"]
        assert file.metadata() is None
        assert torch.equal(file.get_tensor("a"), torch.arange(6.0).view(2, 3))
        assert file.get_slice("a").get_shape() == [2, 3]
        assert torch.equal(file.get_slice("a")[:, 1:], torch.tensor([[1.0, 2.0], [4.0, 5.0]]))
    loaded = safetensors.torch.load_file(archive, device=device)
    assert {tensor.device.type for tensor in loaded.values()} == {"cpu"}


def test_what_was_decided_is_counted(archive: str, active: None) -> None:
    safetensors.torch.load_file(archive, device="cuda")
    asked = {(record.api, record.asked, record.given) for record in torchdevice.report().rows}
    assert ("safetensors.safe_open", "cuda", "cpu") in asked


@pytest.mark.parametrize("framework", ["np", "numpy"])
def test_other_frameworks_are_left_alone(archive: str, active: None, framework: str) -> None:
    with safetensors.safe_open(archive, framework) as file:
        assert file.get_tensor("a").tolist() == [[0, 1, 2], [3, 4, 5]]
        assert type(file) is NATIVE


def test_what_safetensors_refuses_it_refuses_in_its_words(archive: str, active: None) -> None:
    refused = (((archive,), {}), ((archive, "pt", "cpu", 1), {}), ((archive, "pt", "cpu"), {"device": 0}))
    for arguments, options in refused:
        with torchdevice.suspended(), pytest.raises(TypeError) as plain:
            NATIVE(*arguments, **options)
        with pytest.raises(TypeError) as ours:
            safetensors.safe_open(*arguments, **options)
        assert str(ours.value) == str(plain.value)
    with pytest.raises(FileNotFoundError):
        safetensors.safe_open(archive + "x", "pt")


def test_names_that_were_imported_before_are_replaced_and_come_back() -> None:
    here = sys.modules[__name__]
    with torchdevice.redirect(target="cpu"):
        kept = safe_open
        assert kept is not NATIVE
        assert here.safe_open is safetensors.safe_open is safetensors.torch.safe_open
    assert safe_open is NATIVE
    assert safetensors.safe_open is safetensors.torch.safe_open is NATIVE


def test_an_open_file_outlives_deactivation(archive: str) -> None:
    with torchdevice.redirect(target="cpu"):
        file = safetensors.safe_open(archive, "pt", "cuda")
        part = file.get_slice("a")
    assert torch.equal(file.get_tensor("a")[0], part[0])
