"""Runs every test marked `accelerated` on virtual devices, each in a process of its own.

The CPU computes for them, or a virtual cuda, as a real one computes for `xpu@cuda`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT


def _run(device: str, *arguments: str, **more: str) -> str:
    command = [sys.executable, "-m", "pytest", "-m", "accelerated", "-p", "no:cacheprovider", "tests/accelerated"]
    # A real GPU stays hidden: conftest.py changed this process's environment.
    environment = {**os.environ, "TORCHDEVICE_VIRTUAL": device, **more}
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.virtual
@pytest.mark.parametrize("device", ["cuda", "cuda:2", "mps", "mps:real", "xpu"])
def test_on_a_virtual_device(device: str) -> None:
    assert " passed" in _run(device)


@pytest.mark.virtual
@pytest.mark.parametrize("device", ["mps", "xpu"])
def test_on_a_virtual_device_that_an_accelerator_backs(device: str) -> None:
    """As in a checkout that is only on PYTHONPATH: torch finds no entry point, and conftest.py installs the device.

    A process that a test starts has no such device, so that test is left out.
    """
    settings = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TORCHDEVICE_TEST_ON": "virtual-cuda"}
    assert " passed" in _run(device, "-k", "not test_activation_leaves_the_device_alone", **settings)
