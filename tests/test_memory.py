"""`torchdevice.memory`: figures, pressure by each source, callbacks, and limits that end with their block."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import torchdevice
from tests.virtual.harness import on
from torchdevice import memory
from torchdevice.memory import Pressure

GIB = 1 << 30


@on("")
def test_a_summary_of_the_cpu() -> None:
    before = memory.summary()
    kept = torch.ones(1 << 22)
    after = memory.summary()
    assert after.target == "cpu"
    assert after.allocated - before.allocated == kept.nbytes
    assert 0 < after.free <= after.total == after.machine
    assert after.resident > kept.nbytes
    assert str(after).splitlines()[0].startswith("target    cpu: ")
    assert [line.split()[0] for line in str(after).splitlines()] == ["target", "process", "machine", "pressure"]


def check_summary(device: str) -> None:
    kept = torch.ones(1 << 20, device=device)
    found = memory.summary()
    assert found.target == device
    assert found.allocated == kept.nbytes
    assert found.reserved >= kept.nbytes
    assert found.free + kept.nbytes <= found.total


@on("cuda")
def test_a_summary_of_cuda() -> None:
    check_summary("cuda")


@on("mps")
def test_a_summary_of_mps() -> None:
    check_summary("mps")


@pytest.mark.parametrize(
    ("free", "level"), [(50, Pressure.NORMAL), (9, Pressure.WARNING), (4, Pressure.CRITICAL), (0, Pressure.CRITICAL)]
)
def test_the_share_that_is_free_is_a_level(free: int, level: Pressure) -> None:
    assert memory._share_free("cuda", free, 100).level is level


@pytest.mark.parametrize(
    ("some", "all_", "level"), [(0, 0, Pressure.NORMAL), (25, 3, Pressure.WARNING), (60, 20, Pressure.CRITICAL)]
)
def test_linux_says_how_long_processes_waited(
    some: int, all_: int, level: Pressure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalls = tmp_path / "memory"
    stalls.write_text(f"some avg10={some}.00 avg60=0.00 avg300=0.00 total=1\nfull avg10={all_}.00 avg60=0 total=1\n")
    monkeypatch.setattr(memory, "_STALLS", stalls)
    (reading,) = memory._linux()
    assert reading.level is level
    assert f"{some} %" in reading.detail
    stalls.unlink()
    assert list(memory._linux()) == []


def test_a_container_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CONTAINER", tmp_path)
    assert list(memory._container()) == []
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("97\n")
    assert list(memory._container()) == []
    (tmp_path / "memory.max").write_text("100\n")
    (tmp_path / "memory.stat").write_text("anon 90\ninactive_file 0\n")
    (reading,) = memory._container()
    assert reading.level is Pressure.CRITICAL
    (tmp_path / "memory.stat").write_text("anon 10\ninactive_file 60\n")
    (reading,) = memory._container()
    assert reading.level is Pressure.NORMAL


@pytest.mark.parametrize(
    ("number", "level"), [(1, Pressure.NORMAL), (2, Pressure.WARNING), (4, Pressure.CRITICAL), (9, None)]
)
def test_what_macos_says(number: int, level: Pressure | None) -> None:
    class Libc:
        def sysctlbyname(self, name: bytes, found: Any, *_: Any) -> int:
            assert name == b"kern.memorystatus_vm_pressure_level"
            ctypes.cast(found, ctypes.POINTER(ctypes.c_int))[0] = number
            return 0

    assert memory._mac_level(Libc()) is level


def test_a_callback_hears_of_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    levels = iter([Pressure.NORMAL, Pressure.WARNING, Pressure.WARNING, Pressure.CRITICAL, Pressure.NORMAL])
    done = threading.Event()

    def read() -> Pressure:
        try:
            return next(levels)
        except StopIteration:
            done.set()
            return Pressure.NORMAL

    monkeypatch.setattr(memory, "pressure", read)
    heard: list[Pressure] = []
    with memory.on_pressure(heard.append, seconds=0.001):
        assert done.wait(30)
    assert heard == [Pressure.WARNING, Pressure.CRITICAL, Pressure.NORMAL]


def test_a_callback_that_fails_ends_the_watch_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "pressure", lambda: Pressure.CRITICAL)
    said: list[str] = []
    monkeypatch.setattr(memory, "warn", lambda text, **_: said.append(text))
    watch = memory.on_pressure(lambda level: 1 / 0, seconds=0.001)
    watch._thread.join(30)
    assert len(said) == 1
    assert "ZeroDivisionError" in said[0]
    watch.stop()


def check_limit_of_the_process() -> None:
    torchdevice.activate(policy="portable")
    for _ in range(2):
        with memory.limit("64MiB"):
            kept = torch.ones(4 << 20)  # 16 MiB
            with pytest.raises(torch.cuda.OutOfMemoryError):
                torch.ones(1 << 28, device="cuda")
            assert kept.sum() == 4 << 20
        assert torch.ones(1 << 26, device="cuda").numel() == 1 << 26


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has no such limit")
@on("", env={"TORCHDEVICE_CACHE": os.devnull})  # where no library can be kept
def test_a_limit_of_the_process_ends_with_its_block() -> None:
    with pytest.warns(torchdevice.TorchDeviceWarning, match="counts all memory of the process"):
        check_limit_of_the_process()


@on("")
def test_a_limit_of_the_cpu_ends_with_its_block() -> None:
    check_limit_of_the_process()


@on("")
def test_a_limit_of_the_cpu_counts_tensors_only() -> None:
    memory.summary()
    with memory.limit(memory.summary().allocated + (64 << 20)):
        other = bytearray(128 << 20)
        kept = torch.ones(4 << 20)
        found = memory.summary()
        assert found.total == found.allocated + found.free
        assert found.free < 64 << 20
        with pytest.raises(torch.OutOfMemoryError, match=r"^CPU out of memory\. Tried to allocate 64\.00 MiB\."):
            kept.repeat(4)
        with memory.limit(memory.summary().allocated), pytest.raises(torch.OutOfMemoryError):
            kept + 1
        kept += 1
    assert kept.repeat(4).numel() == 16 << 20
    assert len(other) == 128 << 20


@on("")
def test_limits_of_a_block_and_of_the_program_hold_together() -> None:
    """The smaller one counts, and the end of one leaves the other."""
    whole = memory.summary().machine
    with memory.limit(64 << 20):
        torchdevice.activate(target="cpu")
        with pytest.raises(torch.OutOfMemoryError):
            torch.ones(1 << 26)
        torch.cuda.set_per_process_memory_fraction(0.9)
        with pytest.raises(torch.OutOfMemoryError):
            torch.ones(1 << 26)
        torch.cuda.set_per_process_memory_fraction((32 << 20) / whole)
        with pytest.raises(torch.OutOfMemoryError):
            torch.ones(10 << 20)
    with pytest.raises(torch.OutOfMemoryError):
        torch.ones(10 << 20)
    torch.mps.set_per_process_memory_fraction(0.0)  # torch's word for: no limit
    assert torch.ones(10 << 20).numel() == 10 << 20


def check_limit(device: str) -> None:
    with memory.limit(64 << 20):
        kept = torch.ones(4 << 20, device=device)
        assert memory.summary().total == pytest.approx(64 << 20, rel=0.01)
        with pytest.raises(RuntimeError, match="out of memory"):
            torch.ones(1 << 26, device=device)
        with memory.limit("32MiB"), pytest.raises(RuntimeError, match="out of memory"):
            torch.ones(6 << 20, device=device)
        kept += 1
    assert torch.ones(1 << 26, device=device).numel() == 1 << 26


@on("cuda")
def test_a_limit_of_cuda_ends_with_its_block() -> None:
    check_limit("cuda")


@on("mps")
def test_a_limit_of_mps_ends_with_its_block() -> None:
    check_limit("mps")


def test_no_size_is_an_error_that_says_what_was_asked() -> None:
    with pytest.raises(torchdevice.ConfigError, match=r"memory\.limit\('much'\)"), memory.limit("much"):
        pass
