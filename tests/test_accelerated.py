"""Runs every test marked `accelerated` on virtual devices, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.long
@pytest.mark.virtual
@pytest.mark.parametrize("device", ["cuda", "cuda:2", "mps", "mps:real", "xpu"])
def test_on_a_virtual_device(device: str) -> None:
    command = [sys.executable, "-m", "pytest", "-m", "accelerated", "-p", "no:cacheprovider", "tests/accelerated"]
    environment = {**os.environ, "TORCHDEVICE_VIRTUAL": device}  # a real GPU stays hidden: conftest.py changed this
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
