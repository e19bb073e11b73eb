"""Names that user code imported before the activation are translated while it lasts."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import torchdevice

HOLDING = """
from torch import device, zeros, zeros as nothing
from torch.cuda import Stream, is_available
from torch.nn import Linear

def made(make=zeros):
    return zeros(2, device="cuda"), make
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[ModuleType]:
    """A module of user code that was imported while nothing was active."""
    assert not torchdevice.is_active()
    file = tmp_path / "holder_of_names.py"
    file.write_text(HOLDING)
    spec = importlib.util.spec_from_file_location("holder_of_names", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["holder_of_names"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["holder_of_names"]
    torchdevice.deactivate()


def test_they_are_bound_to_the_replacements_until_deactivation(holder: ModuleType) -> None:
    before = dict(vars(holder))
    torchdevice.activate(target="cpu")
    assert holder.zeros is holder.nothing is torch.zeros
    assert holder.is_available is torch.cuda.is_available
    assert holder.Stream is torch.cuda.Stream
    assert holder.device is torch.device
    assert holder.Linear is before["Linear"]
    assert holder.is_available()
    assert holder.Stream(holder.device("cuda:0")).query()
    tensor, make = holder.made()
    assert tensor.device.type == "cpu"
    assert make is before["zeros"]  # a default argument is nobody's name
    torchdevice.deactivate()
    assert {name for name, value in before.items() if vars(holder)[name] is not value} == set()
    assert not holder.is_available()


def test_what_user_code_binds_meanwhile_stays(holder: ModuleType) -> None:
    torchdevice.activate(target="cpu")
    holder.zeros = mine = lambda: None
    torchdevice.deactivate()
    assert holder.zeros is mine
    assert holder.nothing is torch.zeros


def test_installed_modules_are_left_alone(holder: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "__file__", "/usr/lib/python3/site-packages/holder_of_names.py")
    plain = holder.zeros
    torchdevice.activate(target="cpu")
    assert holder.zeros is plain
