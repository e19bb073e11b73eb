"""Tests of device code, for devices that this machine lacks.

pytest -p torchdevice.pytest_plugin --torchdevice-policy portable --torchdevice-virtual mps:real examples/test_gpu.py
pytest -p torchdevice.pytest_plugin --torchdevice-policy portable --torchdevice-virtual cuda:2 examples/test_gpu.py
"""

import pytest
import torch

ACCELERATOR = torch.accelerator.current_accelerator()


def normalise(x: torch.Tensor) -> torch.Tensor:
    """The code under test: it must stay on the device of its input."""
    return (x - x.mean(0)) / x.std(0)


def test_stays_on_the_device() -> None:
    x = torch.randn(16, 4, device=ACCELERATOR)
    assert normalise(x).device == x.device
    assert torch.allclose(normalise(x).cpu(), normalise(x.cpu()), atol=1e-5)


def test_devices_do_not_mix() -> None:
    with pytest.raises(RuntimeError, match="device"):
        torch.ones(2, device=ACCELERATOR) + torch.ones(2)


@pytest.mark.skipif(torch.accelerator.device_count() < 2, reason="needs two devices")
def test_two_devices() -> None:
    x = torch.ones(2, device=f"{ACCELERATOR.type}:1")
    assert normalise(x).device.index == 1
