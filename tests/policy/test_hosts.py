"""What is read of the machine, and what is left alone."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import pytest
import torch

from torchdevice.policy.hosts import Host, this_host


class Nvml:
    """NVIDIA's management library, with a driver for some version of CUDA; 0: it does not tell."""

    def __init__(self, version: int) -> None:
        self._version = version

    def nvmlSystemGetCudaDriverVersion_v2(self, answer: Any) -> int:  # noqa: N802
        answer._obj.value = self._version
        return 0 if self._version else 1


@pytest.fixture
def nvidia(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """torch built for CUDA 12.8, with two GPUs that nothing has touched; touching one fails."""

    def touched(*_: Any) -> Any:
        raise AssertionError("CUDA was initialised")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "_initialized", False)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: 2)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Nvml(12080))
    for owner, name in (
        (torch.accelerator, "current_device_index"),
        (torch.accelerator, "device_count"),
        (torch.accelerator, "is_available"),
        (torch.cuda, "is_available"),
        (torch.cuda, "device_count"),
        (torch.cuda, "init"),
        (torch.cuda, "_lazy_init"),
    ):
        monkeypatch.setattr(owner, name, touched)
    return monkeypatch


def test_looking_at_the_host_does_not_initialise_its_device(nvidia: pytest.MonkeyPatch) -> None:
    """Forked children of a process that has initialised CUDA cannot use it, and its choice of GPUs is made."""
    assert this_host() == Host("cuda", 2, 0)


def test_what_is_initialised_is_asked(nvidia: pytest.MonkeyPatch) -> None:
    nvidia.setattr(torch.cuda, "is_initialized", lambda: True)
    nvidia.setattr(torch.cuda, "is_available", lambda: True)
    nvidia.setattr(torch.cuda, "device_count", lambda: 3)
    nvidia.setattr(torch.accelerator, "current_device_index", lambda: 1)
    assert this_host() == Host("cuda", 3, 1)


@pytest.mark.parametrize(("driver", "count"), [(11080, 0), (0, 0), (12000, 2), (13000, 2)])
def test_a_driver_that_is_too_old_has_no_devices_for_torch(nvidia: pytest.MonkeyPatch, driver: int, count: int) -> None:
    nvidia.setattr(ctypes, "CDLL", lambda name: Nvml(driver))
    assert this_host() == (Host("cuda", count, 0) if count else Host("cpu"))


def test_a_library_that_cannot_be_asked_is_of_an_old_driver(nvidia: pytest.MonkeyPatch) -> None:
    nvidia.setattr(ctypes, "CDLL", lambda name: object())
    assert this_host() == Host("cpu")


def test_without_the_management_library_torch_is_asked_if_there_is_a_driver(nvidia: pytest.MonkeyPatch) -> None:
    nvidia.setattr(torch.cuda, "_device_count_nvml", lambda: -1)
    for there in (True, False):
        nvidia.setattr(torch.cuda, "is_available", lambda there=there: there)
        nvidia.setattr(torch.cuda, "device_count", lambda: 1)
        assert this_host() == (Host("cuda", 1, 0) if there else Host("cpu"))


def test_hidden_devices_are_none(nvidia: pytest.MonkeyPatch) -> None:
    nvidia.setattr(torch.cuda, "_device_count_nvml", lambda: 0)
    assert this_host() == Host("cpu")


def test_a_build_for_cuda_without_a_driver_asks_nothing(nvidia: pytest.MonkeyPatch) -> None:
    """As torch comes from the package index, on a machine without a GPU. A fork has nothing to lose there."""

    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    nvidia.setattr(sys, "platform", "linux")
    nvidia.setattr(torch.cuda, "_device_count_nvml", lambda: -1)
    nvidia.setattr(ctypes, "CDLL", missing)
    assert this_host() == Host("cpu")
    nvidia.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    assert this_host() == Host("cpu")


@pytest.mark.parametrize("counted", [2, -1])
def test_a_forked_child_of_a_process_with_gpus_has_lost_them(nvidia: pytest.MonkeyPatch, counted: int) -> None:
    nvidia.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    nvidia.setattr(torch.cuda, "_device_count_nvml", lambda: counted)
    nvidia.setattr(torch.cuda, "_initialized", counted < 0)
    assert this_host() == Host("cpu", lost="cuda")
