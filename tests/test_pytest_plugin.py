"""The pytest plugin: somebody's CUDA tests, run here."""

from __future__ import annotations

from pathlib import Path

from tests.cli.harness import python, write

CONFTEST = """
import torch
from torch import zeros  # bound early, as conftests do
DEVICE = torch.device("cuda")
"""
TESTS = """
import pytest, torch
from conftest import DEVICE, zeros

def test_on_the_device():
    assert (zeros(2, device="cuda") + torch.ones(2).to(DEVICE)).sum().item() == 2

def test_type(request):
    assert zeros(2, device="cuda").device.type == request.config.getoption("--kind")
"""
OPTION = "def pytest_addoption(parser):\n    parser.addoption('--kind')\n"


def pytest_here(folder: Path, *options: str) -> tuple[int, str]:
    write(folder, {"conftest.py": OPTION + CONFTEST, "test_cuda.py": TESTS, "pytest.ini": "[pytest]\n"})
    done = python("-m", "pytest", "-p", "torchdevice.pytest_plugin", "-p", "no:cacheprovider", *options, cwd=folder)
    return done.returncode, done.stdout + done.stderr


def test_translated(tmp_path: Path) -> None:
    status, said = pytest_here(tmp_path, "--torchdevice-target", "cpu", "--kind", "cpu")
    assert (status, "2 passed" in said) == (0, True), said
    assert "torchdevice: cuda → cpu · 3 calls redirected at 3 places" in said


def test_workers_of_xdist(tmp_path: Path) -> None:
    status, said = pytest_here(tmp_path, "-n", "1", "--torchdevice-policy", "portable", "--kind", "cpu")
    assert (status, "2 passed" in said) == (0, True), said


def test_on_a_virtual_device(tmp_path: Path) -> None:
    status, said = pytest_here(tmp_path, "--torchdevice-virtual", "cuda", "--kind", "cuda")
    assert (status, "2 passed" in said) == (0, True), said


def test_a_bad_option_is_a_usage_error(tmp_path: Path) -> None:
    status, said = pytest_here(tmp_path, "--torchdevice-target", "toaster")
    assert status == 4
    assert "torch has no such device type" in said
