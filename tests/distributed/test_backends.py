"""Which backend stands for which: pure, for hosts that need not exist."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from torchdevice.config import resolve_config, visible_devices
from torchdevice.distributed import backends
from torchdevice.errors import ConfigError
from torchdevice.policy.hosts import Host

CPU, MPS, CUDA = Host("cpu"), Host("mps"), Host("cuda", 2)


@pytest.mark.parametrize("host", [CPU, MPS])
@pytest.mark.parametrize(
    "asked", ["nccl", "NCCL", "Nccl", "cuda:nccl", "cpu:gloo,cuda:nccl", "CPU:GLOO,CUDA:NCCL", "cuda:gloo"]
)
def test_without_a_backend_of_its_own_a_host_uses_gloo(asked: str, host: Host) -> None:
    assert backends.stand_in(asked, host) == "gloo"


@pytest.mark.parametrize(
    "asked", ["gloo", "GLOO", "mpi", "ucc", "fake", "cpu:gloo", "undefined", "mine", "cpu:gloo:x", ":"]
)
def test_what_is_here_is_left_as_it_is_spelled(asked: str) -> None:
    assert backends.stand_in(asked, CPU) == asked


@pytest.mark.parametrize("asked", ["nccl", "NCCL", "cuda:nccl", "cpu:gloo,cuda:nccl"])
def test_cuda_keeps_nccl(asked: str) -> None:
    assert backends.stand_in(asked, CUDA) == asked


def test_xpu_uses_its_own_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    xpu = Host("xpu", 2)
    assert backends.stand_in("nccl", xpu) == "gloo"
    monkeypatch.setattr(dist, "is_xccl_available", lambda: True)
    assert backends.stand_in("nccl", xpu) == "xccl"
    assert backends.stand_in("cpu:gloo,cuda:nccl", xpu) == "cpu:gloo,xpu:xccl"


def test_a_pair_for_a_device_that_is_here_wins() -> None:
    assert backends.stand_in("cpu:mpi,cuda:nccl", CPU) == "cpu:mpi"


def test_vendors_are_read_from_torch() -> None:
    assert backends.vendors()["nccl"] == "cuda"
    assert "gloo" not in backends.vendors()


@pytest.mark.parametrize(
    ("text", "is_one"), [("nccl", True), ("cuda:nccl", True), ("gloo", False), ("an nccl error", False), ("", False)]
)
def test_strings_that_name_a_vendor(text: str, is_one: bool) -> None:
    assert backends.names_vendor(text) is is_one


@pytest.mark.parametrize(
    ("listed", "count", "visible"),
    [
        (None, 4, 4),
        ("", 4, 0),
        ("-1", 4, 0),
        ("0", 4, 1),
        ("0,1", 4, 2),
        ("7", 1, 1),
        ("0,1,2,3", 2, 2),
        ("0,-1,1", 4, 1),
        ("GPU-x", 1, 1),
    ],
)
def test_visible_devices(listed: str | None, count: int, visible: int) -> None:
    environ = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    assert visible_devices(count, environ) == visible


def test_the_number_of_devices_is_a_setting() -> None:
    assert resolve_config(environ={}).device_count == 1
    assert resolve_config(environ={"TORCHDEVICE_DEVICE_COUNT": "4"}).device_count == 4
    for bad in ("0", "-1", "many", "1000"):
        with pytest.raises(ConfigError, match="TORCHDEVICE_DEVICE_COUNT"):
            resolve_config(environ={"TORCHDEVICE_DEVICE_COUNT": bad})


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [("eth", "eth0"), ("=eth1", "eth1"), ("=eth", None), ("^lo,docker", "eth0"), ("ib", None), ("ib,eth1", "eth1")],
)
def test_the_interface_that_nccl_was_told(asked: str, chosen: str | None) -> None:
    assert backends.interface(asked, ["lo", "docker0", "eth0", "eth1"]) == chosen


def test_variables_that_mean_nothing() -> None:
    given = dict.fromkeys(
        ("NCCL_DEBUG", "TORCH_NCCL_BLOCKING_WAIT", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "PATH", "NCCLX"), "1"
    )
    assert list(backends.meaningless(given)) == ["NCCL_DEBUG", "TORCH_NCCL_BLOCKING_WAIT"]
