"""Names outside the namespaces: those of libraries that insist on a device's type."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from torchdevice.cuda.neighbours import LIGHTNING

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


@pytest.mark.parametrize("module", LIGHTNING)
def test_a_check_for_cuda_takes_what_cuda_became(
    module: str, tmp_path: Path, python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    path = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True)
    path.write_text(CHECK, encoding="utf-8")
    for folder in path.parents[: len(module.split(".")) - 1]:  # packages: before those that may be installed
        (folder / "__init__.py").touch()
    said = python(PROGRAM.format(module=module), TORCHDEVICE="1", TORCHDEVICE_TARGET="cpu").stdout.splitlines()
    refusals = [f"Device should be CUDA, got {device} instead." for device in ("meta", "cpu")]
    assert said == [refusals[0], "True", refusals[1]]
