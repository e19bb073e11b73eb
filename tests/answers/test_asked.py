"""Every name about devices that the installed torch asks of torch._C has an answer, or a reason for having none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import torchdevice
from tests.torches import on_pinned_torch
from torchdevice.answers import asked
from torchdevice.answers.device import Device
from torchdevice.answers.shadow import Shadow, module_names
from torchdevice.answers.table import LEFT_ALONE, answers
from torchdevice.errors import CudaOnlyError


def test_nothing_that_torch_asks_is_unanswered() -> None:
    assert len(asked.asked_names()) > 150
    assert asked.unanswered_names() == torchdevice.status().unanswered == ()


def test_what_is_left_alone_is_asked_and_not_answered() -> None:
    wanted = asked.asked_names().keys()
    answered = asked.answered_names()
    for name, reason in LEFT_ALONE.items():
        assert reason
        assert name.endswith("*") or name in wanted or not on_pinned_torch(), name
        assert name not in answered


def test_names_are_found_in_every_spelling(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "new.py").write_text(
        "import torch\nfrom torch._C import _cuda_imported, _something_else\n"
        "torch._C._cuda_called(1)\nif hasattr(torch._C, '_cuda_looked_for'): pass\n"
        "x = getattr(_C, '_xpu_maybe', None)\ntorch._C._CudaNewBase\ntorch.cuda._cuda_not_of_c\n"
    )
    found = asked.asked_names(tmp_path)
    assert set(found) == {"_cuda_imported", "_cuda_called", "_cuda_looked_for", "_xpu_maybe", "_CudaNewBase"}
    assert found["_cuda_called"] == {"cuda/new.py"}


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_a_function_of_a_newer_torch_names_itself_under_translation(kind: str) -> None:
    table = answers(kind, Device("cpu", 1))
    shadow = Shadow(kind, module_names(kind, []), table.functions, table.bases, {}, {})
    native = shadow.globals[f"torch.{kind}"]["torch"]._C
    with pytest.raises(CudaOnlyError, match=f"torch._C._{kind}_brandNew"):
        getattr(native, f"_{kind}_brandNew")()


@pytest.mark.virtual
@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_a_function_of_a_newer_torch_names_itself_on_a_virtual_device(kind: str, python: Callable[..., Any]) -> None:
    done = python(
        f"""
import torch, torchdevice.virtual
torchdevice.virtual.install("{kind}")
try:
    torch._C._{kind}_brandNew(1)
except torchdevice.CudaOnlyError as error:
    print(error)
try:
    torch._C._another_name
except AttributeError as error:
    print(error)
"""
    )
    assert f"torch._C._{kind}_brandNew was called" in done.stdout
    assert "has no attribute '_another_name'" in done.stdout
    assert not torchdevice.is_active()
