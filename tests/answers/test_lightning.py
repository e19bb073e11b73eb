"""Lightning's own checks and names, in a library that has nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torchdevice.answers.lightning import CHECKS_LATER, REGISTRIES_LATER

# As Lightning has it.
CHECK = """
import torch

class CUDAAccelerator:
    def setup_device(self, device):
        if device.type != "cuda":
            raise ValueError(f"Device should be CUDA, got {device} instead.")
        torch.cuda.set_device(device)
"""
PROGRAM = """
import torch
from {module} import CUDAAccelerator

original = CUDAAccelerator.setup_device
CUDAAccelerator().setup_device(torch.device("cuda", 0))
try:
    CUDAAccelerator().setup_device(torch.device("meta"))
except ValueError as error:
    print(error)
import torchdevice
torchdevice.deactivate()
print(CUDAAccelerator.setup_device is not original)
try:
    CUDAAccelerator().setup_device(torch.device("cpu"))
except ValueError as error:
    print(error)
"""


def write_module(folder: Path, module: str, text: str) -> None:
    """A library as far as it matters here; its packages come before those that may be installed."""
    path = folder.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    for package in path.parents[: len(module.split(".")) - 1]:
        (package / "__init__.py").touch()


@pytest.mark.parametrize("module", [row[0] for row in CHECKS_LATER])
def test_a_check_for_cuda_takes_what_cuda_became(
    module: str, tmp_path: Path, python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    write_module(tmp_path, module, CHECK)
    said = python(PROGRAM.format(module=module), TORCHDEVICE="1", TORCHDEVICE_TARGET="cpu").stdout.splitlines()
    refusals = [f"Device should be CUDA, got {device} instead." for device in ("meta", "cpu")]
    assert said == [refusals[0], "True", refusals[1]]


REGISTRY = """
class _AcceleratorRegistry(dict):
    def get(self, name, default=None):
        return dict.get(self, name, default)
"""
ASK = """
from {module} import _AcceleratorRegistry
import torchdevice

registry = _AcceleratorRegistry(mps="for a Mac", cuda="for CUDA", cpu="for the CPU")
print([registry.get(name) for name in ("mps", "cuda", "cpu")], registry.get("tpu", "none"))
print([row.api for row in torchdevice.report().rows])
torchdevice.deactivate()
print(registry.get("mps"))
"""


@pytest.mark.virtual
@pytest.mark.parametrize("module", [row[0] for row in REGISTRIES_LATER])
@pytest.mark.parametrize("device", ["", "cuda", "mps", "xpu"])
def test_an_accelerator_for_mps_is_the_one_for_cuda(
    module: str, device: str, tmp_path: Path, python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    write_module(tmp_path, module, REGISTRY)
    said = python(ASK.format(module=module), TORCHDEVICE="1", TORCHDEVICE_VIRTUAL=device).stdout.splitlines()
    on_mps = device == "mps" and sys.platform == "darwin"
    names = ["for a Mac" if on_mps else "for CUDA", "for CUDA", "for the CPU"]
    counted = [] if on_mps else [f"{module}._AcceleratorRegistry.get"]
    assert said == [f"{names} none", str(counted), "for a Mac"]
