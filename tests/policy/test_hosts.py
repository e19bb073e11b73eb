"""What is read of the machine, and what is left alone."""

from __future__ import annotations

import pytest
import torch

from torchdevice.policy.hosts import Host, this_host


def test_looking_at_the_host_does_not_initialise_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch refuses a device to the forked children of a process that has initialised it."""

    def initialise() -> int:
        raise AssertionError("asked for the current device")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "current_device_index", initialise)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert this_host() == Host("cuda", 2, 0)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 1)
    assert this_host() == Host("cuda", 2, 1)
